"""Which hosts may be reached."""

from ipaddress import ip_address

import pytest

from everturn.hosts import Reach, host_rule, is_public


@pytest.mark.parametrize(
    ("listed", "host", "port", "allowed"),
    [
        (None, "example.com", 443, True),
        (None, "example.com", 80, True),
        (None, "example.com", 22, False),
        ((), "example.com", 443, False),
        (("example.com",), "example.com", 443, True),
        (("Example.COM",), "example.com", 443, True),
        (("example.com",), "www.example.com", 443, False),
        (("example.com",), "example.com", 8080, False),
        (("example.com:8080",), "example.com", 8080, True),
        (("example.com:8080",), "example.com", 443, False),
        (("example.com:*",), "example.com", 5, True),
        (("*.example.com",), "a.b.example.com", 443, True),
        (("*.example.com",), "example.com", 443, False),
        (("*.example.com",), "badexample.com", 443, False),
        (("*",), "example.com", 443, True),
        (("*",), "93.184.216.34", 443, True),
        (("93.184.216.34",), "93.184.216.34", 443, True),
        (("10.0.0.0/8",), "10.1.2.3", 443, True),
        (("10.0.0.0/8",), "11.1.2.3", 443, False),
        (("[::1]:8080",), "::1", 8080, True),
        (("::1",), "::1", 80, True),
        (("127.0.0.1",), "::ffff:127.0.0.1", 80, True),
        (("*",), "exa_mple.com", 443, True),
        (("*",), "example.com\n", 443, False),
        (("*",), "1.2.3.0x4", 443, False),
        (("*",), "-a.com", 443, False),
        (("*",), "", 443, False),
    ],
)
def test_a_host_is_allowed_by_a_rule_that_names_it_and_its_port(listed, host, port, allowed):
    assert (Reach.of(listed).refused_host(host, port) is None) == allowed


@pytest.mark.parametrize(
    ("listed", "address", "allowed"),
    [
        (None, "93.184.216.34", True),
        (None, "10.0.0.1", False),
        (("intern.example",), "10.0.0.1", False),
        (("*",), "10.0.0.1", False),
        (("*:*",), "10.0.0.1", False),
        (("10.0.0.0/24",), "10.0.0.1", True),
        (("10.0.0.0/24",), "10.0.1.1", False),
        (("10.0.0.1:8080",), "10.0.0.1", False),
        (("169.254.169.254",), "169.254.169.254", True),
        (("::ffff:0:0/96",), "127.0.0.1", False),
    ],
)
def test_an_address_that_is_not_public_must_be_listed_itself(listed, address, allowed):
    assert (Reach.of(listed).refused_address(ip_address(address), 443) is None) == allowed


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("64:ff9b::808:808", True),
        ("::ffff:8.8.8.8", True),
        ("64:ff9b::a9fe:a9fe", False),
        ("64:ff9b:1::808:808", False),
        ("2002:808:808::", False),
        ("2001::808:808", False),
        ("::8.8.8.8", False),
        ("224.0.0.1", False),
        ("ff02::1", False),
        ("192.0.0.8", False),
        ("168.63.129.16", False),
        ("100.64.0.1", False),
        ("fe80::1%eth0", False),
        ("2606:4700::1111%eth0", False),
        ("fd00:ec2::254", False),
        ("0.0.0.0", False),
        ("::", False),
        ("240.0.0.1", False),
    ],
)
def test_what_is_public(address, public):
    assert is_public(ip_address(address)) == public


@pytest.mark.parametrize(
    "text",
    ["", "example.com:0", "example.com:70000", "example.com:x", "http://a.com", "a b", "127.1",
     "*.*.com", "a:b:c", "0x7f.1", "10.0.0.1/8", "exa*mple.com", "example.com:"],
)  # fmt: skip
def test_an_entry_that_names_no_host_is_refused(text):
    with pytest.raises(ValueError, match=r"is no host|has no port"):
        host_rule(text)
