# Records of M0.


rule embedded_model:
    output:
        policy="results/{model}/base/policy.json",
        files=[f"results/{{model}}/base/model/{name}" for name in embedded.digests()],
    log:
        "results/logs/embedded_model/{model}.log",
    benchmark:
        "results/benchmarks/embedded_model/{model}.tsv"
    wildcard_constraints:
        model=models_from("embedded"),
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["embedded_model"],
        source=lambda w: CONFIG.models[w.model].params(without={"settings"}),
        files=embedded.digests(),
    message:
        "Copy the embedded model to {wildcards.model}"
    script:
        "../scripts/embedded_model.py"


rule gguf_model:
    input:
        model_sources,
    output:
        policy="results/{model}/base/policy.json",
        files=[f"results/{{model}}/base/model/{name}" for name in CONVERTED],
    log:
        "results/logs/gguf_model/{model}.log",
    benchmark:
        "results/benchmarks/gguf_model/{model}.tsv"
    wildcard_constraints:
        model=models_from("gguf"),
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["gguf_model"],
        source=lambda w: CONFIG.models[w.model].params(without={"settings"}),
    message:
        "Convert the GGUF file of {wildcards.model}"
    script:
        "../scripts/gguf_model.py"


rule pretrained_model:
    input:
        model_sources,
    output:
        policy="results/{model}/base/policy.json",
    log:
        "results/logs/pretrained_model/{model}.log",
    benchmark:
        "results/benchmarks/pretrained_model/{model}.tsv"
    wildcard_constraints:
        model=models_from("local", "hub"),
    conda:
        "../../envs/g2d.yaml"
    params:
        version=VERSIONS["pretrained_model"],
        source=lambda w: CONFIG.models[w.model].params(without={"settings"}),
    message:
        "Fetch the base model {wildcards.model}"
    script:
        "../scripts/pretrained_model.py"
