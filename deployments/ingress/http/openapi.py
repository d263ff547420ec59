"""An application's routes as an OpenAPI 3.1 document, made from the schemas that parse."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.routing import BaseRoute, Route

from deployments.contract.errors import ErrorKind, RequestError
from deployments.ingress.http.errors import ERRORS, ErrorFormat

VERSION = "1.0.0"
JSON, EVENTS = "application/json", "text/event-stream"
SCHEMAS, RESPONSES = "#/components/schemas/", "#/components/responses/"
ERROR = "ErrorBody"
METHODS_WITHOUT_BODY = ("GET", "DELETE")
BODY_ERRORS = {
    ErrorKind.REQUEST_TIMEOUT,
    ErrorKind.BODY_TOO_LARGE,
    ErrorKind.UNSUPPORTED_MEDIA_TYPE,
}
# Only of routes that say so.
RARE_ERRORS = frozenset(
    {
        ErrorKind.CONFLICT,
        ErrorKind.GONE,
        ErrorKind.STALE,
        ErrorKind.CONDITION_NEEDED,
        ErrorKind.WRONG_DIGEST,
        ErrorKind.RATE_LIMITED,
        ErrorKind.STORAGE_FULL,
        ErrorKind.UPGRADE_REQUIRED,  # of WebSockets, which the document does not have
    }
)
SECURITY: Mapping[str, object] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}
TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}

Schema = Mapping[str, object]
TEXT: Schema = {"type": "string"}
NON_EMPTY_TEXT: Schema = {**TEXT, "minLength": 1}
PARAMS = (None, "field")


@dataclass(frozen=True, slots=True, kw_only=True)
class Documentation:
    """`path` is where both live: "/v1" makes it /v1/openapi.json and /v1/docs."""

    title: str
    path: str = ""

    @property
    def document(self) -> str:
        return f"{self.path}/openapi.json"

    @property
    def page(self) -> str:
        return f"{self.path}/docs"


class DocumentedRoute(Route):
    """A route that says what it takes and gives; of a plain one it is assumed to be JSON.

    Without media types it gives a 204.
    """

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., object],
        *,
        methods: Sequence[str],
        name: str,
        tag: str,
        body: type[BaseModel] | None = None,
        body_type: str = JSON,
        media_types: Sequence[str] = (JSON,),
        query: Sequence[str] = (),
        needed: Sequence[str] = (),
        headers: Sequence[str] = (),
        refusals: Collection[ErrorKind] = (),
    ) -> None:
        """`headers`: those that it reads. `refusals`: those of RARE_ERRORS that it has."""
        super().__init__(path, endpoint, methods=methods, name=name)
        self.tag = tag
        self.body = body
        self.body_type = body_type
        self.media_types = media_types
        self.query = query
        self.needed = needed  # in the query too
        self.headers = headers
        self.refusals = frozenset(refusals)


def openapi(
    about: Documentation,
    routes: Sequence[BaseRoute],
    envelope: ErrorFormat,
    *,
    keys: bool,
    public: frozenset[str],
) -> object:
    """The document as JSON. `keys` says that paths outside `public` need one."""
    documented = [
        _documented(candidate)
        for candidate in routes
        if isinstance(candidate, Route) and candidate.include_in_schema
    ]
    references, schemas = _schemas(documented)
    paths: dict[str, dict[str, object]] = {}
    for route in documented:
        locked = keys and route.path not in public
        operations = paths.setdefault(route.path_format, {})
        for method in sorted((route.methods or set()) - {"HEAD"}):
            operations[method.lower()] = _operation(route, method, references, envelope, locked)
    used = set(ErrorKind) - RARE_ERRORS
    used = used.union(*(route.refusals for route in documented))
    components: dict[str, object] = {
        "schemas": {**schemas, ERROR: _error_schema(envelope)},
        "responses": _error_responses(envelope, used),
    }
    if keys:
        components["securitySchemes"] = SECURITY
    info = {"title": about.title, "version": VERSION}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": components}


def _documented(route: Route) -> DocumentedRoute:
    if isinstance(route, DocumentedRoute):
        return route
    methods = sorted(route.methods or ())
    return DocumentedRoute(
        route.path, route.endpoint, methods=methods, name=route.name, tag="Server"
    )


def _schemas(
    routes: Sequence[DocumentedRoute],
) -> tuple[Mapping[type[BaseModel], Schema], Mapping[str, object]]:
    """A reference for each body, and what is referred to, with names that do not clash."""
    bodies = {route.body for route in routes if route.body is not None}
    ordered = sorted(bodies, key=lambda body: (body.__module__, body.__qualname__))
    found, definitions = models_json_schema(
        [(body, "validation") for body in ordered], ref_template=SCHEMAS + "{model}"
    )
    references = {body: found[body, "validation"] for body in ordered}
    return references, definitions.get("$defs", {})


def _operation(
    route: DocumentedRoute,
    method: str,
    references: Mapping[type[BaseModel], Schema],
    envelope: ErrorFormat,
    locked: bool,
) -> object:
    words = route.path_format.replace("{", "").replace("}", "").strip("/")
    operation: dict[str, object] = {
        "operationId": f"{method.lower()}_{words.replace('/', '_')}",
        "summary": route.name.replace("_", " ").capitalize(),
        "tags": [route.tag],
        "parameters": _parameters(route),
        "responses": _responses(route, method, envelope, locked),
        "security": [{name: []} for name in SECURITY] if locked else [],
    }
    if route.body is not None:
        content = {route.body_type: {"schema": references[route.body]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _parameters(route: DocumentedRoute) -> list[object]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": TEXT}
        for name in route.param_convertors
    ]
    in_query = [
        {"name": name, "in": "query", "required": is_needed, "schema": schema}
        for names, is_needed, schema in (
            (route.needed, True, NON_EMPTY_TEXT),
            (route.query, False, TEXT),
        )
        for name in names
    ]
    in_header = [
        {"name": name, "in": "header", "required": False, "schema": TEXT} for name in route.headers
    ]
    return [*in_path, *in_query, *in_header]


def _responses(
    route: DocumentedRoute, method: str, envelope: ErrorFormat, locked: bool
) -> Mapping[str, object]:
    content = {
        media_type: {"schema": {} if media_type in (JSON, EVENTS) else TEXT}
        for media_type in route.media_types
    }
    kinds = set(ErrorKind) - RARE_ERRORS | route.refusals
    if method in METHODS_WITHOUT_BODY:
        kinds -= BODY_ERRORS
    if not locked:
        kinds.discard(ErrorKind.AUTHENTICATION)
    statuses = sorted({_sample(envelope, kind)[0] for kind in kinds})
    refusals = {str(status): {"$ref": f"{RESPONSES}{status}"} for status in statuses}
    if not content:
        return {"204": {"description": "Done"}, **refusals}
    return {"200": {"description": "The answer", "content": content}, **refusals}


def _error_responses(envelope: ErrorFormat, used: Collection[ErrorKind]) -> Mapping[str, object]:
    by_status: dict[int, list[ErrorKind]] = {}
    for kind in sorted(used):
        by_status.setdefault(_sample(envelope, kind)[0], []).append(kind)
    return {str(status): _error_response(kinds) for status, kinds in sorted(by_status.items())}


def _error_response(kinds: Sequence[ErrorKind]) -> object:
    headers = {name for kind in kinds for name in ERRORS[kind].headers if name != "connection"}
    return {
        "description": ", ".join(kind.value.replace("_", " ") for kind in kinds).capitalize(),
        "headers": {name: {"schema": TEXT} for name in sorted(headers)},
        "content": {JSON: {"schema": {"$ref": SCHEMAS + ERROR}}},
    }


def _error_schema(envelope: ErrorFormat) -> Schema:
    return _schema_of([_sample(envelope, kind, param)[1] for kind in ErrorKind for param in PARAMS])


def _sample(envelope: ErrorFormat, kind: ErrorKind, param: str | None = None) -> tuple[int, object]:
    return envelope(RequestError(kind, "What is wrong", param), "request-id")


def _schema_of(examples: Sequence[object]) -> Schema:
    """Returns the schema of all examples: objects of the same form, or plain values."""
    objects = [example for example in examples if isinstance(example, Mapping)]
    if len(objects) < len(examples):
        types = sorted({TYPES[type(example)] for example in examples})
        return {"type": types[0] if len(types) == 1 else types}
    names = dict.fromkeys(name for mapping in objects for name in mapping)
    properties = {
        name: _schema_of([mapping[name] for mapping in objects if name in mapping])
        for name in names
    }
    required = [name for name in names if all(name in mapping for mapping in objects)]
    return {"type": "object", "properties": properties, "required": required}
