"""linearizability: a checker from outside: histories of bin/mqchaos --controller judged by
porcupine, in a small Go program (main.go); its module is pinned by go.sum and comes through the
ordinary client."""
