"""broker.settings.auth_config: which settings a broker starts with; secrets stay hidden."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Final

import pytest

from broker.auth.auth import Auth
from broker.broker_startup import load_startup_options
from broker.settings.auth_config import AuthConfig
from broker.settings.startup_options import StartupOptions
from conf.errors import StartupExitError

PACKAGE: Final = "org.apache.rocketmq.auth."
USERS: Final = PACKAGE + "authentication.provider.LocalAuthenticationMetadataProvider"
ACLS: Final = PACKAGE + "authorization.provider.LocalAuthorizationMetadataProvider"
WHOLE: Final = {
    "authenticationEnabled": "true",
    "authenticationProvider": PACKAGE + "authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": USERS,
    "authenticationStrategy": PACKAGE + "authentication.strategy.StatefulAuthenticationStrategy",
    "authenticationWhitelist": "26, 105",
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
    "authorizationEnabled": "true",
    "authorizationProvider": PACKAGE + "authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": ACLS,
    "authorizationStrategy": PACKAGE + "authorization.strategy.StatelessAuthorizationStrategy",
    "migrateAuthFromV1Enabled": "true",
    "userCacheMaxNum": "5",
}


def start(tmp_path: Path, **settings: str) -> StartupOptions:
    path = tmp_path / "broker.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return load_startup_options(["-c", str(path)], {"ROCKETMQ_HOME": str(tmp_path)})


def refusal(tmp_path: Path, **settings: str) -> str:
    with pytest.raises(StartupExitError) as caught:
        start(tmp_path, **settings)
    return caught.value.text


def test_a_whole_file_of_rocketmq(tmp_path: Path) -> None:
    options = start(tmp_path, **WHOLE)
    assert options.auth.init_user() == ("root", "root-secret")
    assert options.auth.inner_credentials() == ("inner", "inner-secret")
    assert options.auth.whitelist(options.auth.authentication_whitelist) == {26, 105}
    assert options.auth.is_on
    assert StartupOptions.from_settings(options.child_settings()).auth == options.auth


def test_secrets_are_shown_nowhere(tmp_path: Path) -> None:
    """-p, request 26, dumps and the log of the settings all come from `settings`."""
    options = start(tmp_path, **WHOLE)
    shown = options.settings()
    assert shown["authenticationEnabled"] == "true"
    assert not [text for text in shown.values() if "-secret" in text]
    with pytest.raises(StartupExitError) as printed:
        load_startup_options(
            ["-p", "-c", str(tmp_path / "broker.conf")], {"ROCKETMQ_HOME": str(tmp_path)}
        )
    assert "authorizationEnabled=true" in printed.value.text
    assert "-secret" not in printed.value.text


def test_a_settings_file_that_everybody_may_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").touch(mode=0o644)
    (tmp_path / "broker.conf").chmod(0o644)
    warnings = start(tmp_path, **WHOLE).warnings
    assert any("broker.conf holds secrets and has mode 0644" in text for text in warnings)


def test_tables_that_everybody_may_read_are_named(tmp_path: Path) -> None:
    """As of a copy that was put back; a change gives them their mode again."""
    directory = tmp_path / "store" / "config"
    directory.mkdir(parents=True)
    root = {"storePathRootDir": str(tmp_path / "store")}
    for name in ("users.json", "acls.json.bak"):
        (directory / name).touch()
        (directory / name).chmod(0o644)
        warnings = start(tmp_path, **WHOLE, **root).warnings
        assert any(f"{name} holds secrets and has mode 0644" in text for text in warnings)
    assert not any("users.json" in text for text in start(tmp_path, **root).warnings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"authenticationEnabled": "true"}, f"needs authenticationMetadataProvider={USERS}"),
        (
            {"authorizationEnabled": "true", "authenticationMetadataProvider": USERS},
            f"needs authorizationMetadataProvider={ACLS}",
        ),
        ({"authorizationMetadataProvider": ACLS}, "needs authenticationMetadataProvider"),
        ({"migrateAuthFromV1Enabled": "true"}, "needs authenticationMetadataProvider and"),
        (
            {"initAuthenticationUser": '{"username":"a","password":"b"}'},
            "needs authenticationMetadataProvider",
        ),
        ({**WHOLE, "aclEnable": "true"}, "aclEnable=true: there can be one access control only"),
        ({**WHOLE, "authenticationProvider": "com.example.X"}, "com.example.X: only org.apache"),
        ({**WHOLE, "authorizationMetadataProvider": "X"}, "X: only org.apache"),
        ({**WHOLE, "authorizationStrategy": "X"}, "X: only org.apache"),
        ({**WHOLE, "authenticationWhitelist": "26,x"}, "26,x: expected request codes"),
        ({**WHOLE, "initAuthenticationUser": "root:hidden"}, 'expected the JSON object {"username'),
        ({**WHOLE, "initAuthenticationUser": '{"username":"root"}'}, "expected the JSON object"),
        ({**WHOLE, "initAuthenticationUser": '["hidden"]'}, "expected the JSON object"),
        (
            {**WHOLE, "innerClientAuthenticationCredentials": '{"accessKey":"hidden"}'},
            'expected the JSON object {"accessKey":"…","secretKey":"…"}',
        ),
    ],
)
def test_what_a_broker_does_not_start_with(
    tmp_path: Path, settings: dict[str, str], words: str
) -> None:
    text = refusal(tmp_path, **settings)
    assert words in text
    assert "broker.conf:" in text
    assert "hidden" not in text


def test_settings_that_were_not_checked_do_not_open_the_broker(tmp_path: Path) -> None:
    for changed in ({"authentication_enabled": True}, {"authorization_enabled": True}):
        options = dataclasses.replace(start(tmp_path), auth=AuthConfig(**changed))
        with pytest.raises(ValueError, match="need a table of users"):
            Auth(options)


def test_defaults_are_off() -> None:
    config: Any = AuthConfig()
    assert not config.is_on
    assert config.problems_of(acl_enable=True) == []
