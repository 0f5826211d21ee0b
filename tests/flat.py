"""The limits by flat settings: those that networks with explicit weights take, in one dict."""

from dataclasses import fields

from depthmup import limits


def grouped(settings, *groups):
    """Settings with those of each group's class as one value: ``momentum=0.3`` becomes an SGD."""
    rest = dict(settings)
    for name, group in groups:
        names = {field.name for field in fields(group)} & rest.keys()
        if names:
            rest[name] = group(**{key: rest.pop(key) for key in names})
    return rest


SGD, BRANCH = ("optimizer", limits.SGD), ("branch", limits.Branch)


def linear(steps, **settings):
    return limits.linear(steps, **grouped(settings, SGD))


def nonlinear(steps, **settings):
    return limits.nonlinear(steps, **grouped(settings, SGD))


def two_matrix(steps, **settings):
    return limits.two_matrix(steps, **grouped(settings, SGD, BRANCH))


def mean_ode(steps, **settings):
    return limits.mean_ode(steps, **grouped(settings, SGD, BRANCH))


def sign_sgd(steps, **settings):
    return limits.sign_sgd(steps, **grouped(settings, BRANCH))
