"""`python -m ddpkit` runs the command `ddpkit`."""

from ddpkit.commands.main import main

main()
