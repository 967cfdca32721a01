from __future__ import annotations

import os

from deeprec_ext.launch.environment import AUTOLOAD, aimaster_environment, python_path, role_environment


def test_our_sitecustomize_comes_first_then_the_users_python_path_and_our_package_last():
    entries = python_path("/mine:/also", autoload=True).split(os.pathsep)
    assert entries == [str(AUTOLOAD), "/mine", "/also", str(AUTOLOAD.parent.parent)]
    assert [file.name for file in AUTOLOAD.glob("*.py")] == ["sitecustomize.py"], (
        "nothing of the user's is hidden by it"
    )


def test_nothing_is_added_twice():
    once = python_path("/mine", autoload=True)
    assert python_path(once, autoload=True) == once


def test_a_ps_and_the_aimaster_do_not_autoload():
    assert str(AUTOLOAD) not in role_environment({}, autoload=False, base={})["PYTHONPATH"].split(os.pathsep)
    assert str(AUTOLOAD) not in aimaster_environment({})["PYTHONPATH"].split(os.pathsep)


def test_the_users_own_values_win_over_our_defaults():
    base = {"TF_CPP_MIN_LOG_LEVEL": "0", "CUDA_VISIBLE_DEVICES": "1"}
    values = role_environment({}, autoload=True, base=base)
    assert (values["TF_CPP_MIN_LOG_LEVEL"], values["CUDA_VISIBLE_DEVICES"]) == ("0", "1")
    assert role_environment({}, autoload=True, base={})["TF_CPP_MIN_LOG_LEVEL"] == "2"


def test_what_an_outer_job_left_is_taken_out():
    base = {"DEEPREC_EXT_OWNER": "7", "DEEPREC_EXT_ROLE": "ps", "TF_CONFIG": "{}", "HOME": "/root"}
    values = role_environment({"DEEPREC_EXT_ROLE": "chief"}, autoload=True, base=base)
    assert values["DEEPREC_EXT_ROLE"] == "chief"
    assert "DEEPREC_EXT_OWNER" not in values
    assert "TF_CONFIG" not in values
    assert values["HOME"] == "/root"
    assert "DEEPREC_EXT_ROLE" not in aimaster_environment(base)
