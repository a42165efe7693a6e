"""What `benchmarks.fedbnr` calls avg+local and kd+local is what the SDK makes at a hospital."""

import torch

from benchmarks.fedbnr.local_layers import local_layers
from benchmarks.fedbnr.protocol import Table, Tables
from client_sdk.model.personal.layers import own_layers
from client_sdk.simulation import simulate
from kernels.model.model import known
from kernels.model.prediction import predict_standardised
from kernels.rounds.site.site import Part, Site
from tests.dealing import DEALING
from tests.kernels.rounds import noisy


def test_the_benchmarks_local_layers_predict_as_the_personal_model_does() -> None:
    program = noisy.program(held_out=0.2)
    sites = [
        Site.of_table(noisy.SCHEMA, noisy.table(90, seed=seed), held_out=0.2, dealing=DEALING)
        for seed in range(3)
    ]
    model = simulate(program, sites, DEALING, secure=False).model
    rows = [Table(*site.table(Part.TRAINING, model)) for site in sites]
    new = Table(*sites[0].table(Part.CALIBRATION, model))
    tables = Tables(clients=tuple(rows), validation=new, test=new, scale=1.0)
    for client, site in enumerate(sites):
        personal = own_layers(model, site).model
        scales = known(personal.hyperparameters, "linear")
        benchmark = local_layers(model.urk, scales, tables)[client](new.x)
        own = predict_standardised(personal, new.x)
        assert torch.allclose(benchmark.mean, own.mean)
        assert torch.allclose(benchmark.variance, own.variance)
