"""Questions about Manta and its use, with answers as the README has them."""

from serve_app.demo.training.corpus.chat import Talk, one
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.topics import topics

ABOUT_MANTA = topics("""
? [What is|What's|Explain|Describe|Tell me about|What do you know about] [Manta|the Manta \
project|the Manta server|this server][|, please].
? [What does Manta do|What is Manta for|What is Manta used for|What is this project|Can you \
explain what Manta is|What is Manta in one sentence|Manta, what is it]?
? [Can|Could] you [tell me about|explain|describe|introduce] Manta[| to me|, please]?
= Manta is a language-model server for Ray: it speaks to OpenAI, Anthropic and llama-server \
clients, \
and runs models in its own PyTorch engine.
! Ray, server

? How [do I|can I|would I|does one] [load|use|serve|run|try|get] [another|a different|a bigger|a \
better|my own|a real|a larger] model[| in Manta| with Manta| here]?
? [Can I|Is it possible to|May I] [load|use|serve|run] [another|a different|a bigger|my own] \
model[| with Manta]?
? How [do I|can I] [change|switch|replace|set|configure] [the model|models|the demo model]?
? Where [do I|can I] [set|choose|name|change|configure] the model?
= In serve_app/serve.yaml, set model: PATH_OR_ID in the args of the router, and start again. It \
is a \
Hugging Face id or a directory with a config.json.
! serve_app/serve.yaml, PATH_OR_ID

? How [do I|can I|does one] [start|run|launch|serve|begin with] [Manta|the server|this \
server|the Manta server]?
? [What|Which] command [starts|runs|launches|serves] [Manta|the server|it]?
? How is [Manta|the server] [started|launched|run]?
= Run this command: serve run serve_app/serve.yaml
! serve run serve_app/serve.yaml

? [What is|What's|Explain|Describe] [the router|Manta's router|the router of Manta].
? [What does the router do|What is the router for|How does the router work|Why is there a \
router|Does the router carry tokens]?
= The router chooses a replica for each request, loads and unloads models, and carries no tokens.
! replica, tokens

? [What is|What's|Explain|Describe|How does Manta do|What do you mean by] [prefix \
routing|prefix-affine routing|prefix affinity|routing by prefix][|, please].
? How does [prefix routing|routing|prefix affinity] work[| in Manta]?
? [How does Manta choose a replica|Which replica gets a request|Where does a request go|How are \
requests routed|Who decides which replica answers]?
= The router sends a request to the replica that already holds its prefix in the cache, so that \
the prefix is not computed again.
! prefix, replica

? [What is|What's|Explain|Describe|Tell me about] [the KV cache|a KV cache|the paged KV cache|a \
paged KV cache|paged attention|Manta's cache][|, please].
? How does [the KV cache|the paged KV cache|the cache] work?
? Why does [the KV cache|the cache] [have|use] pages?
? [Why is the cache paged|What does paged mean|What is a page of the cache|How does Manta store \
keys and values|What is in a page|How does Manta save memory]?
= The KV cache keeps the keys and values of tokens that were read. It is cut into pages of equal \
size, which requests can share.
! keys, pages

? [What is|What's|Explain|Describe|Tell me about] [continuous batching|batching in Manta|Manta's \
batching][|, please].
? How does [continuous batching|batching|the batch] work[| in Manta]?
? [How does Manta batch requests|Why continuous batching|What does continuous batching mean|Must \
a new request wait for others|Why is batching continuous|When does a request join the batch]?
= With continuous batching, requests join and leave the batch at every step, so a new one does not \
wait for the others to finish.
! join, step

? [What is|What's|Explain|Tell me about|Describe] [Ray|Ray Serve][|, please].
? [What is Ray used for|What does Ray do|What does Ray Serve do|Why does Manta use Ray|What is \
Manta built on]?
= Ray is a system that runs Python programs on many machines. Ray Serve is its part for serving, \
and \
Manta is built on it.
! machines, Ray

? [Which|What] [protocols|APIs|interfaces] does Manta [speak|have|serve|support|offer]?
? [Does Manta support|Is Manta compatible with|Can I use|Does Manta speak] \
[OpenAI|Anthropic|llama-server|the OpenAI API|the OpenAI client|the Anthropic client|the OpenAI \
SDK|the Anthropic API]?
? [Which|What] clients [can I use|work with Manta|does Manta support]?
= Manta speaks three protocols: OpenAI under /v1, Anthropic under /v1/messages, and llama-server \
under /.
! OpenAI, Anthropic, llama-server

? [What are the parts of|What is the architecture of|Describe the parts of|Describe the \
architecture of|Of what parts is] Manta[| made]?
? [How does Manta work|Which applications does Manta have|What does the graph look like|What is \
the graph|Explain the graph|What is Manta's graph|How does Manta work inside]?
? [Explain|Describe|Show me] [the graph of Manta|how Manta works|the design of Manta|Manta's \
architecture].
= Manta is a graph: an ingress for each protocol, a router that chooses a replica, and model \
replicas \
that run the engine.
! ingress, router, replicas

? [What is|What's|Explain|Describe] [a replica|a model replica|a replica of a model][|, please].
? [What are|Explain|Describe] [replicas|the replicas][|, please].
? [What does a replica do|What is in a replica|How many engines has a replica|What does each \
replica have]?
= A replica is one running copy of a model, with an engine and a KV cache of its own.
! copy, engine

? [What is|What's|Explain|Describe] [an ingress|the ingress|an ingress in Manta][|, please].
? [What does the ingress do|What is the ingress for|What does an ingress do|Where is text turned \
into tokens|Who speaks the protocols]?
= An ingress speaks one protocol with the clients. It works with text and tokens, never with \
tensors.
! protocol, tensors

? [What happens when|What if|What happens if] a replica [dies|crashes|fails|goes away|is \
killed][| in the middle of an answer]?
? [Is Manta fault tolerant|Does a stream survive a crash|Are answers lost when a replica \
dies|What about failover]?
= The ingress continues the request on another replica, and the client sees one unbroken stream.
! another replica, stream

? [Does Manta need|Do I need|Is there need for|Must I have] a GPU[| for Manta| to run Manta| for \
this]?
? [Can I|Is it possible to] run Manta [on a laptop|on a CPU|without a GPU|on my computer|at home]?
? [Where can Manta run|On what does Manta run|What hardware does Manta need|Does Manta run on a \
laptop|Does Manta run on a CPU|Does Manta run on a cluster]?
= No GPU is needed: Manta runs on a laptop, and the same graph runs on a GPU cluster.
! laptop, GPU

? [Which|What] [models|kinds of models|language models] [can Manta serve|does Manta run|does \
Manta support|work with Manta|can I serve]?
? [Can Manta serve|Does Manta run|Does Manta support|Can I load] [Qwen|Llama|Mistral|any \
model|Hugging Face models|models of transformers]?
= Manta serves any decoder-only model that transformers loads, with full or sliding-window \
attention.
! decoder-only, transformers

? [Can Manta serve|Can I serve|How do I serve|How can I serve|Does Manta serve|How do I load] \
[many models|several models|two models|more than one model|three \
models][| at once| at the same time]?
? [What is|What's|Explain] [a presets file|models_dir|models_max].
? [What are|Explain] presets?
? [How do I list models|Where do I list several models|What do I do for many models]?
= Name a presets file or a folder of models in the args of the router; a request loads the model \
that \
it names, up to models_max at once.
! presets, models_max

? [How do I|How can I] [set an API key|protect Manta|add a key|require a key|keep others out|use \
API keys|secure the server]?
? [Is Manta open to everyone|Does Manta have API keys|Who can use my server|Is there \
authentication|Does Manta need a key]?
= Manta listens on loopback and is open there. Set api_keys or api_key_file in the args of each \
ingress to ask for a key.
! loopback, api_keys

? [Which|What] port does [Manta|the server] [use|listen on|have]?
? [Where is the server|What is the address of Manta|What is the base URL|At which address is \
Manta|Which URL do I use|Where does Manta listen]?
= Manta listens on port 8000: http://127.0.0.1:8000, and OpenAI clients use \
http://127.0.0.1:8000/v1.
! 8000

? [How do I know|How can I see|How can I check] [that Manta is ready|whether the server is \
ready|whether Manta runs|that the model is loaded|that it works]?
? [Is there a health check|What does /health say|Where is the health check|When is Manta \
ready|How long does Manta take to start]?
= Ask /health: it says status ok when the model is loaded, which takes less than a minute.
! /health

? [Does Manta support|Can Manta do|How does Manta do|Does Manta have] [tool calls|tools|function \
calling|structured output|JSON schemas|grammars|reasoning|thoughts]?
? [Can models call tools|Can I ask for JSON|How are tool calls read|How do I get JSON|Can I \
force a tool call]?
= Yes: Manta reads the tool calls and thoughts of many models, and grammars can hold an answer \
to a \
JSON schema.
! tool calls, schema

? Is there [documentation|a web page|an API page][| of Manta| for the API]?
? [Where are the docs|Where is the documentation|Where can I find the docs|Where can I find the \
documentation][| of Manta| for the API]?
? [How do I try the API|Where can I see all endpoints|Which endpoints are there|Where are the \
endpoints described]?
= Open http://127.0.0.1:8000/v1/docs: a page to read and try the API.
! v1/docs

? [Where are|How do I see|How can I see|Where do I find|Does Manta have] [metrics|\
statistics|numbers of the server|Prometheus metrics]?
? [How do I|How can I] [watch|monitor|observe] [Manta|the server|the fleet]?
= /metrics has the numbers of the whole graph in Prometheus form, and there is a Grafana dashboard.
! /metrics, Prometheus

? [What happens when the server is overloaded|What if there are too many requests|What does an \
overloaded server say|How does Manta refuse requests|What if all pages are taken]?
? [When do I get a 429|Why do I get a 429|What does 429 mean|What is Retry-After for]?
= An overloaded server answers 429 with Retry-After, so try again a little later.
! 429, Retry-After

? [How do I|How can I] [use|call|run] [the engine|Manta's engine|the engine alone|the engine \
without Ray]?
? [Can I use the engine without Ray|Can I use Manta as a library|Is there a library|Does the \
engine need Ray|Can I run it without a server]?
= Yes, as a library: from deployments.engine.engine import InferenceEngine, and call generate. \
It needs \
no Ray.
! InferenceEngine

? [What is|What's|Explain] [sleep|sleeping|an idle model|sleep_idle_s][| in Manta].
? [Can a model sleep|What happens to idle models|How do I free memory of an idle model|Does an \
idle model keep its memory|When does a model sleep]?
= An idle model can sleep: it gives up its memory after sleep-idle-seconds, and wakes with the \
next \
request.
! memory, wakes
""")


def manta(draw: SeededDraw) -> Talk:
    return one(draw.choice(ABOUT_MANTA).exchange(draw))
