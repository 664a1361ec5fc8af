"""Options: what is refused, and that secrets are nowhere to be seen."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from spark.sources.errors import OptionError
from spark.sources.options import CONNECTION_OPTIONS, Options, configured

SECRET = "open sesame"


def options(**given: str) -> Options:
    return Options({"nameServers": "n:1", **given})


def test_name_servers() -> None:
    assert Options({"NAMESERVERS": " a:1; b:2 "}).connection().name_servers == ("a:1", "b:2")
    assert Options({"nameServers": "a:1,b:2"}).connection().name_servers == ("a:1", "b:2")
    assert Options({}, {"nameServers": "c:3"}).connection().name_servers == ("c:3",)
    with pytest.raises(OptionError, match="nameServers, host:port"):
        Options({}).connection()
    with pytest.raises(OptionError, match="'nobody' is not host:port"):
        Options({"nameServers": "a:1;nobody"}).connection()
    with pytest.raises(OptionError, match="names none"):
        Options({"nameServers": ";"}).connection()


def test_two_names_of_one_thing() -> None:
    with pytest.raises(OptionError, match="options topics and topic: give one of them"):
        options(topic="A", topics="B").names("topics", "topic")


def test_unknown_names() -> None:
    options(timeoutMs="1").check_names(CONNECTION_OPTIONS, "rocketmq")
    with pytest.raises(OptionError, match="no option retrymss; the nearest is retryMs"):
        options(retrymss="1").check_names(CONNECTION_OPTIONS, "rocketmq")


@pytest.mark.parametrize("name", ["secretKey", "accesskey", "tlsKeyPassword"])
def test_secrets_are_no_options(name: str) -> None:
    with pytest.raises(OptionError, match="from a file") as caught:
        options(**{name: SECRET}).check_names(CONNECTION_OPTIONS, "rocketmq")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("text", ["x", "1.5", "--1", "99", "3600001", "9" * 30, "٣٠٠"])
def test_numbers(text: str) -> None:
    assert options(timeoutMs="100").connection().timeout_ms == 100
    with pytest.raises(OptionError, match=r"option timeoutMs: .* is no number from 100 to 3600000"):
        options(timeoutMs=text).connection()


def test_flags() -> None:
    assert options(tls="TRUE").connection().tls is not None
    assert options(tls="false").connection().tls is None
    with pytest.raises(OptionError, match="'yes' is neither true nor false"):
        options(tls="yes").connection()


class TestSecrets:
    def test_of_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "tools.yml"
        path.write_text(f"accessKey: me\nsecretKey: {SECRET}\n")
        connection = options(aclFile=str(path)).connection()
        assert connection.credentials is not None
        assert connection.credentials.secret_key == SECRET
        assert SECRET not in repr(connection)
        assert pickle.loads(pickle.dumps(connection)) == connection

    def test_of_spark(self) -> None:
        defaults = configured(
            [("spark.rocketmq.accessKey", "me"), ("spark.rocketmq.secretKey", SECRET), ("a", "b")]
        )
        found = Options({"nameServers": "n:1"}, defaults)
        connection = found.connection()
        assert connection.credentials is not None
        assert (connection.credentials.access_key, connection.credentials.secret_key) == (
            "me",
            SECRET,
        )
        assert SECRET not in repr(found) + repr(connection)

    def test_a_file_given_as_option_goes_before_settings(self, tmp_path: Path) -> None:
        path = tmp_path / "tools.yml"
        path.write_text("accessKey: file\nsecretKey: s\n")
        defaults = {"accessKey": "conf", "secretKey": SECRET}
        found = Options({"nameServers": "n:1", "aclFile": str(path)}, defaults).connection()
        assert found.credentials is not None
        assert found.credentials.access_key == "file"

    def test_half_a_pair(self) -> None:
        with pytest.raises(OptionError, match="set both"):
            Options({"nameServers": "n:1"}, {"accessKey": "me"}).connection()

    @pytest.mark.parametrize("text", [f"secretKey: {SECRET}\n", f"[{SECRET}", f"{SECRET}: [1]\n"])
    def test_a_file_that_holds_something_else(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "tools.yml"
        path.write_text(text)
        with pytest.raises(OptionError, match="does not hold accessKey and secretKey") as caught:
            options(aclFile=str(path)).connection()
        assert SECRET not in str(caught.value)
        assert caught.value.__cause__ is None

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match=r"option aclFile: .*none.yml: No such file"):
            options(aclFile=str(tmp_path / "none.yml")).connection()

    def test_a_password_of_a_key(self, tmp_path: Path) -> None:
        path = tmp_path / "password"
        path.write_text(SECRET + "\n")
        connection = options(
            tlsCertFile="c", tlsKeyFile="k", tlsKeyPasswordFile=str(path)
        ).connection()
        assert connection.tls is not None
        assert connection.tls.key_password == SECRET
        assert SECRET not in repr(connection)

    def test_a_key_without_its_certificate(self) -> None:
        with pytest.raises(OptionError, match="give both or neither"):
            options(tlsKeyFile="k").connection()

    def test_an_unknown_setting(self) -> None:
        with pytest.raises(OptionError, match=r"setting spark\.rocketmq\.passwd is unknown") as e:
            configured([("spark.rocketmq.passwd", SECRET)])
        assert SECRET not in str(e.value)
