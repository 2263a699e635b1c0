"""The class of this machine's devices, as a Fuseplan service names it: `class_key("cpu")`, `class_key("cuda")`."""

from fuseplan_client.device.class_keys import class_key
from fuseplan_client.device.cuda_device import NoDevice

__all__ = ["NoDevice", "class_key"]
