"""Entry point of `shoal` and `kubectl-shoal`: one click group whose commands are imported only when they are called.

Every group lives in the package that owns it; this module knows names and places only, so that `shoal --help` stays
fast and an absent optional dependency breaks the one command that needs it, with a line that says what to install.
"""

from shoal_cli.lazy import Command, LazyGroup

COMMANDS = (
    Command("local", "shoal_local.cli", "local", "Run a real Kubernetes on this machine, with GPU-like nodes.", "cli"),
    Command("demo", "shoal_cli.demo.command", "demo", "The whole path on this machine, shown as it happens.", "dev"),
    Command("replay", "shoal_cli.replay.command", "replay", "Send a recorded trace to an endpoint and report.", "cli"),
    Command(
        "simulate",
        "shoal_cli.simulate.command",
        "simulate",
        "Send a recorded trace through a fleet in virtual time.",
        "operator,router,sim,cli",
    ),
    Command("status", "shoal_cli.status", "status", "Show ModelServices, their replicas and why they are so.", "cli"),
    Command("explain", "shoal_cli.explain", "explain", "Why a replica count or a routing choice is what it is.", "cli"),
    Command("plan", "shoal_cli.plan", "plan", "Show what the operator would make of a manifest.", "operator,cli"),
    Command(
        "fit", "shoal_cli.plan", "fit", "Say whether a model fits its GPUs, and how much KV is left.", "operator,cli"
    ),
    Command("crds", "shoal_cli.crds", "crds", "Write or check the custom resource definitions.", "cli"),
)


main = LazyGroup(
    name="shoal",
    commands_known=COMMANDS,
    help="Serve large language models on many SGLang replicas: one endpoint, routed by cache and load, scaled by work.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


if __name__ == "__main__":
    main()
