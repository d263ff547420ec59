"""How soon a replica that gets HTTP stops. Serve would keep it for 30 s, idle or not.

The time is for balancers that have not heard of the stop. HAProxy hears of it in a tenth of a
second, and tries another replica when one refuses.
"""

import os

MIN_DRAINING_VARIABLE = "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S"
# Serve reads the variable in the process of the replica. An operator's own value has precedence.
SHORT_DRAINING = {"env_vars": {MIN_DRAINING_VARIABLE: os.environ.get(MIN_DRAINING_VARIABLE, "1")}}
# Between two looks at whether a replica that stops still has requests. Serve also waits that long
# before the first look; its default is 2 s, which every swap of models would pay.
DRAIN_CHECK_S = 0.2
