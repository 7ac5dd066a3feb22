"""`shoal-sim engine [SGLang arguments]`: one simulated engine in the foreground.

`python -m sglang.launch_server [SGLang arguments]` does the same where simulator/sglang_shim is on PYTHONPATH.
"""

import logging
import sys

from shoal_sim import flags, settings

USAGE = """usage: shoal-sim engine --model-path MODEL [SGLang arguments]
                        [--speedup X] [--profile NAME] [--load-seconds S]

An engine that speaks SGLang's HTTP surface with simulated timing. All SGLang arguments of the modelled version are
accepted; docs/simulator.md says which act. --speedup, --profile and --load-seconds are the simulator's own
(environment: SHOAL_SIM_SPEEDUP, SHOAL_SIM_PROFILE, SHOAL_SIM_LOAD_SECONDS, SHOAL_SIM_GPU).
"""


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["engine"]:
        sys.exit(launch(arguments[1:]))
    asked = arguments[:1] in (["-h"], ["--help"])
    (sys.stdout if asked else sys.stderr).write(USAGE)
    sys.exit(0 if asked else 2)


def launch(argv: list[str]) -> int:
    """Runs an engine with SGLang's own arguments; returns the exit status."""
    if "-h" in argv or "--help" in argv:
        sys.stdout.write(USAGE)
        return 0
    try:
        resolved = settings.resolve(flags.parse(argv))
    except flags.CommandLineError as error:
        flags.refuse(str(error))
    # Imported late: a refused command line should not wait for the server's imports.
    from shoal_sim import server

    logging.basicConfig(level=logging.INFO, format="[%(asctime)s] %(message)s", datefmt="%Y-%m-%d %H:%M:%S")
    return server.run(resolved)


if __name__ == "__main__":
    main()
