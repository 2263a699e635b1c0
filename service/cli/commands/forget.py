"""`fuseplan plans forget`: a search that failed is made again."""

from codegen.devices.detection import detect
from codegen.sandbox.object_cache import ObjectCache
from fusion_ir.keys.graph_key import graph_key
from service.cli.graph_argument import read_graph
from service.cli.options import Cache, Db, Format, Graph, Json, Memory, NumericsClass, Shapes, Target
from service.cli.terminal import print_json, say
from service.settings import load
from tuning_db.requests import RequestKey
from tuning_db.store import Store


def forget_failure(
    graph: Graph,
    target: Target = None,
    numerics: NumericsClass = "reassociate",
    memory: Memory = None,
    db: Db = None,
    cache: Cache = None,
    format_: Format = None,
    shapes: Shapes = None,
    json: Json = False,
) -> None:
    """Forget that the search for a graph failed, so that it is searched again when someone asks.

    --target, --numerics and --memory are those of the request whose search failed.
    """
    settings = load({"target": target, "db": db, "cache": cache})
    key = graph_key(read_graph(graph, format_, shapes).graph)
    with Store(settings.db) as store:
        device = detect(settings.target, ObjectCache(settings.cache, store.seal()))
        forgotten = store.failures.forget(RequestKey(key, device.class_key, numerics, memory_bytes=memory))
        place = store.place
    if json:
        print_json({"graph_key": key, "device_key": device.class_key, "forgotten": forgotten})
    elif forgotten:
        say("forgotten: the next request searches again")
    else:
        say(f"No failed search for this is noted in {place}.")
