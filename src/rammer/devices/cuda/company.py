"""What programs of a model have in common on a GPU whose runs follow each other."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import cache

from rammer.devices.base import Source
from rammer.devices.codegen.tables import Manifest
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
        self.kept_of: Callable[[int], Kept] = cache(lambda size_bytes: Kept(driver))
        self._constants: weakref.WeakSet[Constants] = weakref.WeakSet()

    def constants_of(
        self, driver: Driver, source: Source, manifest: Manifest, given: Constants | None = None
    ) -> Constants:
        """The constants of a program on the GPU: given ones, else where others have them and copied there.

        Raises:
            DeviceUnavailableError: there is too little memory.
        """
        with self.lock:
            known = list(self._constants)
        found = given or Constants(driver, source, manifest, known)
        with self.lock:
            self._constants.add(found)
        return found
