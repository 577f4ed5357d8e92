"""What an administrator sets: the settings of an agent, and the configuration of the nodes."""
