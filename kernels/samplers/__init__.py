"""Samplers of a posterior from gradients of its log density on batches of rows, one file each.

    build(log_posterior, …)       -> Sampler   init and update with the sampler's settings applied
    State                                      frozen data: parameters (…, P), and what a step needs
    init(parameters)              -> State
    update(state, batch, …)       -> State     one step; randomness is a torch.Generator

`log_posterior(parameters, batch)` is an estimate from a batch, up to a constant, of log p(θ | D) or
of a multiple of it; a sampler's `temperature` divides it. If it is the mean over N rows,
temperature 1/N samples the posterior and T/N a tempered one, as in [PredBayes].

Parameters may be many vectors at once, (…, P): each is a chain with its own noise.
"""
