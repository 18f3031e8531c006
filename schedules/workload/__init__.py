"""What is computed: tensors, stages and workloads, checked, counted, in normal form and as JSON."""
