"""Devices that plans were made for, and those that are out of service."""

from fastapi import APIRouter, Request

from codegen.devices.quarantine import Quarantines
from codegen.sandbox.object_cache import ObjectCache
from service.api.context import context
from service.api.models import DevicePage, QuarantineModel
from service.api.threads import blocking
from service.api.times import moment

router = APIRouter(tags=["devices"])


@router.get("/v1/devices", summary="Devices", response_model=DevicePage)
@blocking
def devices(request: Request) -> DevicePage:
    """By device key, the last seen first, with what each was measured to reach; and which are out of service, why."""
    ctx = context(request)
    facts = Quarantines(ObjectCache(ctx.settings.cache)).all()
    return DevicePage(
        devices={d.class_key: d.device for d in ctx.store.devices.devices()},
        quarantined={q.device_key: QuarantineModel(name=q.name, reason=q.reason, since=moment(q.since)) for q in facts},
    )
