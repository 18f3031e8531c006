"""From a workload and a trace to the loop nest that a back end generates code for."""
