"""Lower a workload and a trace to the loop nest from which a back end generates code."""
