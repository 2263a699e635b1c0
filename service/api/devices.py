"""Devices that plans were made for."""

from fastapi import APIRouter, Request

from service.api.context import context
from service.api.models import DevicePage

router = APIRouter(tags=["devices"])


@router.get("/v1/devices", summary="Devices", response_model=DevicePage)
def devices(request: Request) -> DevicePage:
    """By device key, the last seen first, with what each was measured to reach."""
    return DevicePage(devices={d.class_key: d.device for d in context(request).store.devices()})
