"""Keeps the fuzzed gateway alive and to this machine, so that every route can be tried."""

import os

import schemathesis

# Nothing listens there: the gateway asks every worker that it is given how it is, wherever that may be.
NOWHERE = "http://127.0.0.1:9"
# These serve the run. What is asked of one of them is asked of the spare one, which may rest and go.
SERVING = frozenset(os.environ["ELDR_FUZZ_SERVING"].split(","))
SPARE = os.environ["ELDR_FUZZ_SPARE"]


@schemathesis.hook.apply_to(operation_id="addWorker")
def map_body(ctx, body):
    """A URL is replaced; whatever else is wrong with the body stays wrong, and what is no URL goes to the gateway as it is."""
    if isinstance(body, dict) and isinstance(body.get("url"), str) and body["url"].lower().startswith(("http://", "https://")):
        return {**body, "url": NOWHERE}
    return body


@schemathesis.hook.apply_to(operation_id=["removeWorker", "drainWorker", "undrainWorker"])
def before_call(ctx, case, kwargs):
    """The list of workers leads to those that serve."""
    if case.path_parameters.get("id") in SERVING:
        case.path_parameters["id"] = SPARE
