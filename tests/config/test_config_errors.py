"""The texts of config errors, whole: what a user reads is part of the interface."""

import textwrap
from dataclasses import fields
from pathlib import Path

import pytest
from tables import table

from runner import register
from runner.config import gate
from runner.config.compose import CommandLine, compose
from runner.config.groups.entries import BUILT_IN, DATASETS, OPTIMIZERS, numbers
from runner.config.schema import RunConfig
from runner.dataset.catalog import AUGMENTABLE
from runner.errors import RunnerError
from runner.host import files

CASES = {
    "epocs=3": """
        ConfigError: unknown key
          key      epocs
          value    3
          allowed  TOP_KEYS
          nearest  epochs
          from     command line
    """,
    "device.targte=GPU": """
        ConfigError: unknown key
          key      device.targte
          value    "GPU"
          allowed  target, id, threads, allow_fallback, tf32
          nearest  device.target
          from     command line
    """,
    "+dataset.batchsize=8": """
        ConfigError: unknown key
          key      dataset.batchsize
          value    8
          allowed  DATASET_KEYS
          nearest  dataset.batch_size
          from     command line
    """,
    "optimizer=adam optimizer.beta3=0.5": """
        ConfigError: unknown key
          key      optimizer.beta3
          value    0.5
          allowed  ADAM_KEYS
          nearest  optimizer.beta2
          from     command line
    """,
    "optimizer=adam optimizer.dampening=0.1": """
        ConfigError: unknown key
          key      optimizer.dampening
          value    0.1
          allowed  ADAM_KEYS
          hint     add optimizer=sgd first
          from     command line
    """,
    "network.num_chanels=3": """
        ConfigError: unknown key
          key      network.num_chanels
          value    3
          allowed  name, freeze, head, num_classes, num_channels, weight_init
          nearest  network.num_channels
          from     command line
    """,
    "network.head=replac": """
        ConfigError: not one of the choices
          key      network.head
          value    "replac"
          allowed  keep, replace
          nearest  replace
          from     command line
    """,
    "network.freeze=conv1.*": """
        ConfigError: not a list
          key      network.freeze
          value    "conv1.*"
          allowed  a list of texts
          from     command line
    """,
    "network.freeze=[3]": """
        ConfigError: not text
          key      network.freeze
          value    [3]
          allowed  text
          nearest  "3"
          from     command line
    """,
    "network.freeze=['']": """
        ConfigError: not allowed
          key      network.freeze
          value    [""]
          allowed  text that matches \\S(.*\\S)?
          from     command line
    """,
    "session.winograd=of": """
        ConfigError: not one of the choices
          key      session.winograd
          value    "of"
          allowed  auto, off
          nearest  off
          from     command line
    """,
    "checkpoint.names=torchvison": """
        ConfigError: no naming of weights
          key      checkpoint.names
          value    "torchvison"
          allowed  torch, torchvision, or a file *.yaml or *.json
          nearest  torchvision
          from     command line
    """,
    "checkpoint.names=nowhere.yaml": """
        ConfigError: no such file
          key      checkpoint.names
          value    "nowhere.yaml"
          allowed  torch, torchvision, or a file *.yaml or *.json
          from     command line
    """,
    "checkpoint.names=torch": """
        ConfigError: names of weights that are not loaded
          key   checkpoint.names
          hint  checkpoint.load=FILE.safetensors
          from  command line
    """,
    "expect.acuracy.min=1": """
        ConfigError: unknown key
          key      expect.acuracy
          value    {"min": 1}
          allowed  SCALARS
          nearest  expect.accuracy
          from     command line
    """,
    "expect.confusion_matrix.min=1 eval.metrics=[confusion_matrix]": """
        ConfigError: this metric is an array, not a single number
          key      expect.confusion_matrix
          value    "confusion_matrix"
          allowed  SCALARS
          from     command line
    """,
    "expect.loss.mx=1": """
        ConfigError: unknown key
          key      expect.loss.mx
          value    1
          allowed  min, max
          nearest  expect.loss.max
          from     command line
    """,
    "device.id=4096": """
        ConfigError: out of range
          key      device.id
          value    4096
          allowed  whole number, 0 to 4095
          from     command line
    """,
    "device.id=-1": """
        ConfigError: out of range
          key      device.id
          value    -1
          allowed  whole number, 0 to 4095
          from     command line
    """,
    "sink_size=0": """
        ConfigError: out of range
          key      sink_size
          value    0
          allowed  -1 or a whole number of 1 to 2147483647
          from     command line
    """,
    "sink_size=-2": """
        ConfigError: out of range
          key      sink_size
          value    -2
          allowed  -1 or a whole number of 1 to 2147483647
          from     command line
    """,
    "epochs=0": """
        ConfigError: out of range
          key      epochs
          value    0
          allowed  whole number, 1 to 2147483647
          from     command line
    """,
    "epochs=true": """
        ConfigError: not a whole number
          key      epochs
          value    true
          allowed  whole number, 1 to 2147483647
          from     command line
    """,
    "epochs=1.5": """
        ConfigError: not a whole number
          key      epochs
          value    1.5
          allowed  whole number, 1 to 2147483647
          from     command line
    """,
    "epochs=1e3": """
        ConfigError: not a whole number
          key      epochs
          value    1000.0
          allowed  whole number, 1 to 2147483647
          nearest  1000
          from     command line
    """,
    "epochs='3'": """
        ConfigError: not a whole number
          key      epochs
          value    "3"
          allowed  whole number, 1 to 2147483647
          nearest  3
          from     command line
    """,
    "epochs=null": """
        ConfigError: not a whole number
          key      epochs
          value    null
          allowed  whole number, 1 to 2147483647
          from     command line
    """,
    "epochs=[1]": """
        ConfigError: not a whole number
          key      epochs
          value    [1]
          allowed  whole number, 1 to 2147483647
          from     command line
    """,
    "max_steps=0": """
        ConfigError: out of range
          key      max_steps
          value    0
          allowed  null or whole number, 1 to 2147483647
          from     command line
    """,
    "dataset.num_parallel_workers=65": """
        ConfigError: out of range
          key      dataset.num_parallel_workers
          value    65
          allowed  whole number, 1 to 64
          from     command line
    """,
    "dataset=cifar10 dataset.augment=always": """
        ConfigError: not true or false
          key      dataset.augment
          value    "always"
          allowed  true or false
          from     command line
    """,
    "dataset=mnist dataset.augment=true": """
        ConfigError: images of this dataset cannot be augmented
          key      dataset.augment
          value    true
          allowed  false, or a dataset of AUGMENTABLE
          hint     augment mirrors images, which changes the class of those of mnist
          from     command line
    """,
    "dataset.verify=no": """
        ConfigError: not true or false
          key      dataset.verify
          value    "no"
          allowed  true or false
          nearest  false
          from     command line
    """,
    "dataset.image_size=4097": """
        ConfigError: out of range
          key      dataset.image_size
          value    4097
          allowed  whole number, 1 to 4096
          from     command line
    """,
    "dataset.normalize=1": """
        ConfigError: not true or false
          key      dataset.normalize
          value    1
          allowed  true or false
          from     command line
    """,
    "seed=-1": """
        ConfigError: out of range
          key      seed
          value    -1
          allowed  whole number, 0 to 9223372036854775807
          from     command line
    """,
    "seed=9223372036854775808": """
        ConfigError: out of range
          key      seed
          value    9223372036854775808
          allowed  whole number, 0 to 9223372036854775807 (64 bits)
          from     command line
    """,
    "mode=grph": """
        ConfigError: not one of the choices
          key      mode
          value    "grph"
          allowed  graph, pynative, graph_mode, pynative_mode, 0, 1
          nearest  graph
          from     command line
    """,
    "mode=2": """
        ConfigError: not one of the choices
          key      mode
          value    2
          allowed  graph, pynative, graph_mode, pynative_mode, 0, 1
          from     command line
    """,
    "mode=true": """
        ConfigError: not one of the choices
          key      mode
          value    true
          allowed  graph, pynative, graph_mode, pynative_mode, 0, 1
          from     command line
    """,
    "device.target=ascent": """
        ConfigError: not one of the choices
          key      device.target
          value    "ascent"
          allowed  CPU, GPU, Ascend
          nearest  Ascend
          from     command line
    """,
    "network.name=lenet": """
        ConfigError: not one of the choices
          key      network.name
          value    "lenet"
          allowed  NETWORKS
          nearest  lenet5
          from     command line
    """,
    "loss.reduction=none": """
        ConfigError: not one of the choices
          key      loss.reduction
          value    "none"
          allowed  mean, sum
          hint     training needs one number per batch
          from     command line
    """,
    "eval.mode=eager": """
        ConfigError: not one of the choices
          key      eval.mode
          value    "eager"
          allowed  null or graph, pynative, graph_mode, pynative_mode, 0, 1
          from     command line
    """,
    "eval.metrics=[acc]": """
        ConfigError: not one of the choices
          key      eval.metrics
          value    ["acc"]
          allowed  METRICS
          from     command line
    """,
    "eval.metrics=loss": """
        ConfigError: not a list
          key      eval.metrics
          value    "loss"
          allowed  a list of METRICS
          from     command line
    """,
    "optimizer.learning_rate=nan": """
        ConfigError: not a finite number
          key      optimizer.learning_rate
          value    nan
          allowed  number, 0 to 3.4e+38
          from     command line
    """,
    "optimizer.learning_rate=fast": """
        ConfigError: not a number
          key      optimizer.learning_rate
          value    "fast"
          allowed  number, 0 to 3.4e+38
          from     command line
    """,
    "optimizer.learning_rate=-0.1": """
        ConfigError: out of range
          key      optimizer.learning_rate
          value    -0.1
          allowed  number, 0 to 3.4e+38
          from     command line
    """,
    "optimizer=adam optimizer.beta1=1": """
        ConfigError: out of range
          key      optimizer.beta1
          value    1
          allowed  number, above 0 and below 1
          from     command line
    """,
    "optimizer=ftrl optimizer.learning_rate=0": """
        ConfigError: out of range
          key      optimizer.learning_rate
          value    0
          allowed  number, above 0 and at most 3.4e+38
          from     command line
    """,
    "optimizer=ftrl optimizer.lr_power=0.5": """
        ConfigError: out of range
          key      optimizer.lr_power
          value    0.5
          allowed  number, -3.4e+38 to 0
          from     command line
    """,
    "optimizer=lars optimizer.coefficient=0": """
        ConfigError: out of range
          key      optimizer.coefficient
          value    0
          allowed  number, above 0 and at most 3.4e+38
          from     command line
    """,
    "optimizer=sgd optimizer.nesterov=true": """
        ConfigError: nesterov needs momentum above 0 and no dampening
          key    optimizer.nesterov
          value  true
          from   command line
    """,
    "optimizer.schedule.name=cosin": """
        ConfigError: not one of the choices
          key      optimizer.schedule.name
          value    "cosin"
          allowed  constant, step, exponential, cosine, polynomial
          nearest  cosine
          from     command line
    """,
    "optimizer.schedule=cosine": """
        ConfigError: not a group of keys
          key      optimizer.schedule
          value    "cosine"
          allowed  name, warmup_steps
          from     command line
    """,
    "optimizer.schedule.decay_steps=2000": """
        ConfigError: unknown key
          key      optimizer.schedule.decay_steps
          value    2000
          allowed  name, warmup_steps
          hint     a key of optimizer.schedule.name=step, exponential, cosine, polynomial
          from     command line
    """,
    "optimizer.schedule.name=cosine optimizer.schedule.decay_step=2000": """
        ConfigError: unknown key
          key      optimizer.schedule.decay_step
          value    2000
          allowed  name, warmup_steps, decay_steps, min_lr
          nearest  optimizer.schedule.decay_steps
          from     command line
    """,
    "optimizer.schedule.name=step optimizer.schedule.min_lr=0.1": """
        ConfigError: unknown key
          key      optimizer.schedule.min_lr
          value    0.1
          allowed  name, warmup_steps, decay_steps, decay_rate
          hint     a key of optimizer.schedule.name=cosine
          from     command line
    """,
    "optimizer.schedule.warmup_steps=-1": """
        ConfigError: out of range
          key      optimizer.schedule.warmup_steps
          value    -1
          allowed  whole number, 0 to 2147483647
          from     command line
    """,
    "optimizer.schedule.name=step optimizer.schedule.decay_steps=null": """
        ConfigError: not a whole number
          key      optimizer.schedule.decay_steps
          value    null
          allowed  whole number, 1 to 2147483647
          from     command line
    """,
    "optimizer.schedule.name=cosine optimizer.schedule.decay_steps=0": """
        ConfigError: out of range
          key      optimizer.schedule.decay_steps
          value    0
          allowed  null or whole number, 1 to 2147483647
          from     command line
    """,
    "optimizer.schedule.name=exponential optimizer.schedule.decay_rate=0": """
        ConfigError: out of range
          key      optimizer.schedule.decay_rate
          value    0
          allowed  number, above 0 and at most 3.4e+38
          from     command line
    """,
    "optimizer.schedule.name=polynomial optimizer.schedule.power=0": """
        ConfigError: out of range
          key      optimizer.schedule.power
          value    0
          allowed  number, above 0 and at most 3.4e+38
          from     command line
    """,
    "optimizer.schedule.name=exponential optimizer.schedule.is_stair=1": """
        ConfigError: not true or false
          key      optimizer.schedule.is_stair
          value    1
          allowed  true or false
          from     command line
    """,
    "optimizer.schedule.name=cosine optimizer.schedule.min_lr=0.01": """
        ConfigError: the learning rate would not decay
          key      optimizer.schedule.min_lr
          value    0.01
          allowed  below optimizer.learning_rate, which is 0.01
          from     command line
    """,
    "optimizer.schedule.name=step optimizer.learning_rate=0": """
        ConfigError: a schedule needs a learning rate above 0
          key    optimizer.learning_rate
          value  0.0
          hint   optimizer.schedule.name is step
          from   command line
    """,
    "dataset.shuffle=yes": """
        ConfigError: not true or false
          key      dataset.shuffle
          value    "yes"
          allowed  true or false
          nearest  true
          from     command line
    """,
    "dataset.data_dir=3": """
        ConfigError: not text
          key      dataset.data_dir
          value    3
          allowed  null or text
          nearest  "3"
          from     command line
    """,
    "eval=3": """
        ConfigError: not a group of keys
          key      eval
          value    3
          allowed  every, split, metrics, mode, freeze
          from     command line
    """,
    "eval.split=validation": """
        ConfigError: not one of the choices
          key      eval.split
          value    "validation"
          allowed  test, train
          from     command line
    """,
    "callbacks=quite": """
        ConfigError: unknown option
          key      callbacks
          value    "quite"
          allowed  CALLBACKS
          nearest  quiet
          from     command line
    """,
    "checkpoint=3": """
        ConfigError: unknown option
          key      checkpoint
          value    3
          allowed  last, minutely
          from     command line
    """,
    "network.num_channels=one": """
        ConfigError: not a whole number
          key      network.num_channels
          value    "one"
          allowed  null or whole number, 1 to 65536
          from     command line
    """,
    "network.num_channels=0": """
        ConfigError: out of range
          key      network.num_channels
          value    0
          allowed  null or whole number, 1 to 65536
          from     command line
    """,
    "dataset.buffer_size=1": """
        ConfigError: out of range
          key      dataset.buffer_size
          value    1
          allowed  whole number, 2 to 2147483647
          from     command line
    """,
    "expect.accuracy=0.9": """
        ConfigError: not a bound
          key      expect.accuracy
          value    0.9
          allowed  min, max or both
          from     command line
    """,
    "expect={loss:{min:2,max:1}}": """
        ConfigError: min is above max
          key    expect.loss
          value  min 2.0, max 1.0
          from   command line
    """,
    "expect.accuracy.min=0.9 eval.every=never": """
        ConfigError: an expectation that is never evaluated
          key   expect.accuracy
          hint  eval.every=end with accuracy among eval.metrics, or ~expect
          from  command line
    """,
    "dataset=minst": """
        ConfigError: unknown option
          key      dataset
          value    "minst"
          allowed  DATASETS
          nearest  mnist
          from     command line
    """,
    "+experiment=lenett": """
        ConfigError: unknown option
          key      experiment
          value    "lenett"
          allowed  EXPERIMENTS
          nearest  lenet
          from     command line
    """,
    "experiment=lenet": """
        ConfigError: the configuration cannot be composed
          reason  Could not override 'experiment'. No match in the defaults list.
                  To append to your default list use +experiment=lenet
    """,
    "datset=mnist": """
        ConfigError: unknown key
          key      datset
          value    "mnist"
          allowed  TOP_KEYS
          nearest  dataset
          from     command line
    """,
    "epochs=1,2": """
        ConfigError: several values for one run
          key    epochs
          value  1,2
          hint   -m sweeps over the values, [a,b] is a list, quotes make it text
          from   command line
    """,
    "mode=${nothing}": """
        ConfigError: the configuration cannot be composed
          key     mode
          reason  Interpolation key 'nothing' not found
    """,
    "epochs=[1": """
        ConfigError: not an override
          value   "epochs=[1"
          reason  no viable alternative at input '[1'
          hint    write key=value or group=option
    """,
    "dataset.url=${oc.env:SECRET}": """
        ConfigError: a config may not read this environment variable
          key      dataset.url
          value    "${oc.env:SECRET}"
          allowed  HOME, USER, PWD, RUNNER_...
          from     command line
    """,
    "hydra.runn.dir=x": """
        ConfigError: a config may not change this part of Hydra
          key      hydra.runn.dir
          allowed  HYDRA_KEYS
          nearest  hydra.run.dir
          from     command line
    """,
    "~nothing": """
        ConfigError: the configuration cannot be composed
          reason  Could not delete from config. 'nothing' does not exist.
    """,
    "dataset=minst epocs=3 device.id=4096 dataset.batch_size=0": """
        ConfigError: unknown option
          key      dataset
          value    "minst"
          allowed  DATASETS
          nearest  mnist
          from     command line
        ConfigError: unknown key
          key      epocs
          value    3
          allowed  TOP_KEYS
          nearest  epochs
          from     command line
        ConfigError: out of range
          key      device.id
          value    4096
          allowed  whole number, 0 to 4095
          from     command line
    """,
}

FILES = {
    "unknown.yaml": (
        "# @package _global_\n\noptimizer:\n  lerning_rate: 1e-2\n",
        """
        ConfigError: unknown key
          key      optimizer.lerning_rate
          value    0.01
          allowed  name, schedule, learning_rate, momentum, weight_decay, loss_scale, use_nesterov
          nearest  optimizer.learning_rate
          from     configs/experiment/unknown.yaml:4
        """,
    ),
    "typed.json": (
        '{\n  "@package": "_global_",\n  "dataset": {\n    "batch_size": "32"\n  }\n}',
        """
        ConfigError: not a whole number
          key      dataset.batch_size
          value    "32"
          allowed  whole number, 1 to 2147483647
          nearest  32
          from     configs/experiment/typed.json:4
        """,
    ),
    "syntax.json": (
        '{\n  "epochs": 3,\n  "seed": \n}',
        """
        ConfigError: not JSON
          reason  Expecting value
          from    configs/experiment/syntax.json:4:1
        """,
    ),
    "syntax.yaml": (
        "epochs: [1\nseed: 2\n",
        """
        ConfigError: not YAML
          reason  did not find expected ',' or ']'
          from    configs/experiment/syntax.yaml:2:5
        """,
    ),
    "twice.yaml": (
        "# @package _global_\nepochs: 1\nepochs: 2\n",
        """
        ConfigError: duplicate key
          key   epochs
          line  3
          from  configs/experiment/twice.yaml
        """,
    ),
    "code.yaml": (
        "# @package _global_\ndataset:\n  _target_: os.system\n",
        """
        ConfigError: a config may not name code to run
          key   dataset._target_
          from  configs/experiment/code.yaml
        """,
    ),
    "option.yaml": (
        "# @package _global_\ndefaults:\n  - override /dataset: minst\n",
        """
        ConfigError: unknown option
          key      dataset
          value    "minst"
          allowed  DATASETS
          nearest  mnist
          from     config
        """,
    ),
    "large.json": (
        '{"a": "' + "x" * (1 << 20) + '"}',
        """
        ConfigError: the file is too large
          value    1048585 bytes
          allowed  1048576 bytes
          from     configs/experiment/large.json
        """,
    ),
}


def text_of(call: CommandLine) -> str:
    with pytest.raises(RunnerError) as caught:
        compose(call)
    assert caught.value.exit_code == 2
    return str(caught.value)


def expected(text: str) -> str:
    """The text with what is too long to write out, or what later networks, datasets and experiments add, filled in."""
    conf, here = files.folder("conf"), Path.cwd()
    hydra = [key for key in gate.HYDRA_KEYS if not key.startswith(("hydra.launcher", "hydra.sweeper"))]
    long = {
        "TOP_KEYS": [field.name for field in fields(RunConfig)],
        "DATASET_KEYS": [field.name for field in fields(DATASETS["digits"])],
        "ADAM_KEYS": [field.name for field in fields(OPTIMIZERS["adam"])],
        "HYDRA_KEYS": hydra,
        "NETWORKS": [*register.network],
        "DATASETS": sorted(register.dataset),
        "AUGMENTABLE": AUGMENTABLE,
        "CALLBACKS": sorted([*register.callback, *(file.stem for file in (conf / "callbacks").iterdir())]),
        "METRICS": BUILT_IN,
        "SCALARS": numbers(),
        "EXPERIMENTS": sorted(file.stem for file in (conf / "experiment").iterdir()),
        "CONF": [str(conf.relative_to(here) if conf.is_relative_to(here) else conf)],
    }
    for name, words in long.items():
        text = text.replace(name, ", ".join(words))
    return textwrap.dedent(text).strip()


@table(("overrides", "text"), CASES.items(), ids=CASES.keys())
def test_the_whole_text(overrides, text):
    assert text_of(CommandLine(tuple(overrides.split()))) == expected(text)


@pytest.mark.parametrize("name", FILES)
def test_the_whole_text_for_a_file(name, tmp_path, monkeypatch):
    content, text = FILES[name]
    folder = tmp_path / "configs" / "experiment"
    folder.mkdir(parents=True)
    (folder / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    assert text_of(
        CommandLine((f"+experiment={Path(name).stem}",), config_dir=folder.parent.relative_to(tmp_path))
    ) == expected(text)


def test_there_are_enough_texts():
    assert len(CASES) + len(FILES) >= 40
