import uuid

import pytest

from runcontract.contract.address import Address

KEY = uuid.UUID("0123456789abcdef0123456789abcdef")


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (Address("lab.mailrun", 7, 0), "lab-mailrun-7-0"),
        (Address("lab.mailrun", -7, 12), "lab-mailrun--7-12"),
        (Address("my_app.a_run", 2**63 - 1, 2**63 - 1), f"my_app-a_run-{2**63 - 1}-{2**63 - 1}"),
        (Address("lab.uuidrun", KEY, 3), f"lab-uuidrun-{KEY.hex}-3"),
        (Address("lab.uuidrun", uuid.UUID(int=7), 3), f"lab-uuidrun-{'0' * 31}7-3"),
    ],
)
def test_an_address_is_read_as_it_was_written(address: Address, text: str) -> None:
    assert str(address) == text
    assert Address.parse(text) == address
    assert Address.parse(text.encode()) == address


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"lab-mailrun-7",
        b"lab-mailrun-7-",
        b"lab-mailrun-7-0 ",
        b"lab-mailrun-7-0\n",
        b"lab-mailrun-7-0-1",
        b"lab-mailrun-seven-0",
        b"lab-mailrun-7--1",
        b"-mailrun-7-0",
        b"9lab-mailrun-7-0",
        b"lab-MailRun-7-0",
        b"lab.mailrun-7-0",
        b"os.system-rm-7-0",
        b"\x80\x04\x95pickle",
        b"\xff" * 300,
        b"lab-mailrun-" + b"9" * 300 + b"-0",
        f"lab-mailrun-{2**63}-0".encode(),
        f"lab-mailrun-7-{2**63}".encode(),
        "lab-mailrun-\u0667-0".encode(),
        "l\u00e4b-mailrun-7-0".encode(),
        KEY.hex.encode(),
        str(KEY).encode(),
    ],
)
def test_anything_else_is_no_address(message: bytes) -> None:
    assert Address.parse(message) is None


def test_the_lease_makes_each_queueing_another_message() -> None:
    assert str(Address("lab.mailrun", 7, 1)) != str(Address("lab.mailrun", 7, 2))
