"""What all built-in modules have in common."""

from __future__ import annotations

import pytest
from zope.interface.verify import verifyObject

from protogate.errors import ConfigError
from protogate.governance.stages import STAGES
from protogate.interfaces import IModuleFactory
from protogate.plugins import find

BUILT_IN = {
    "accessList": True,
    "addResponseHeader": False,
    "basicAuth": True,
    "forwardAuth": True,
    "hmacAuth": True,
    "jwtAuth": True,
    "keyAuth": True,
    "loginCheck": True,
    "mtlsAuth": True,
    "rbac": True,
    "removeHeader": False,
    "respond": False,
    "rewritePath": False,
    "setRequestHeader": False,
}


@pytest.mark.parametrize(("name", "guards"), BUILT_IN.items())
def test_it_is_found_by_its_name(name, guards):
    factory = find(IModuleFactory, name)
    assert verifyObject(IModuleFactory, factory)
    assert (factory.name, factory.guards) == (name, guards)
    assert set(factory.stages) <= set(STAGES)


@pytest.mark.parametrize("name", [name for name in BUILT_IN if name not in ("respond", "mtlsAuth")])
def test_it_wants_parameters(name):
    with pytest.raises(ConfigError, match="expected"):
        find(IModuleFactory, name).build({})
