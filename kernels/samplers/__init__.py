"""Samplers of a posterior from gradients of its density on batches of rows, one file each.

    build(log_posterior, …)       -> Sampler   init and update with the sampler's numbers filled in
    State                                      frozen data: parameters (…, P), and what is needed on
    init(parameters)              -> State
    update(state, batch, …)       -> State     one step; randomness is a torch.Generator

`log_posterior(parameters, batch)` is an estimate from a batch, up to a constant, of log p(θ | D) or
of a multiple of it; a sampler's `temperature` divides it. With the mean over N rows, temperature
1/N is the posterior and T/N a tempered one, as in [PredBayes].

Parameters may be many vectors at once, (…, P): as many chains, of which each has its own noise.
"""
