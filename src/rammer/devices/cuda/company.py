"""What programs of a model have in common on a GPU whose runs follow each other."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import cache

from rammer.devices.cuda.arrays import Exchange, Kept
from rammer.devices.cuda.constants import Constants
from rammer.devices.cuda.driver import Driver
from rammer.devices.cuda.kernel import LoadedCode
from rammer.devices.cuda.laps import Events
from rammer.devices.cuda.order import Order


class Company:
    """Programs of a model: the order of their runs, and what one of them has loaded that others may use, too."""

    def __init__(self, driver: Driver) -> None:
        self.lock = threading.RLock()
        self.order = Order(driver)
        self.exchange = Exchange(driver)
        self.events = Events(driver)
        self.codes: weakref.WeakSet[LoadedCode] = weakref.WeakSet()
        self.constants: weakref.WeakSet[Constants] = weakref.WeakSet()
        self.kept_of: Callable[[int], Kept] = cache(lambda size_bytes: Kept(driver))
