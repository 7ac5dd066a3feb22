"""Everything that can refuse or warn about a resolved service before anything is created: the one call that the
reconciler, `shoal plan` and `shoal fit` make. Pure.
"""

from shoal_api.conditions import Reason
from shoal_operator.domain import checks, fit, values
from shoal_operator.sglang import launch, rules


def accept(service: values.Service) -> checks.Findings:
    """Flags, checks, cross-flag rules and fit, in this order. Rules and fit run only when flags and checks are right:
    their answers would be about something nobody asked for."""
    found = checks.run_checks(service)
    refusals = [*launch.arg_problems(service), *found.refusals]
    warnings = list(found.warnings)
    if refusals:
        return checks.Findings(tuple(refusals), tuple(warnings))
    if not service.engine.unchecked:
        refusals += checks.over_profiles(service, (flags_conflict,))
    fits = tuple(
        fit.fit_profile(service, profile, launch.merged_flags(service, profile)) for profile in service.profiles
    )
    for one in fits:
        if one is not None and not one.fits:
            (warnings if one.assumed else refusals).append(checks.does_not_fit(one))
    return checks.Findings(tuple(refusals), tuple(warnings), fits)


def flags_conflict(service: values.Service, profile: values.Profile) -> values.Problem | None:
    """The first cross-flag rule of SGLang that the merged flags break."""
    context = rules.Context(service, profile, launch.merged_flags(service, profile))
    message = rules.first_broken(context)
    if message is None:
        return None
    return values.Problem("spec.engine.args", Reason.ENGINE_ARGS_INVALID, f"{profile.gpu}: {message}")
