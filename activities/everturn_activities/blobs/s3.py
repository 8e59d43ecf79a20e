"""Contents by their digests at an address that speaks S3: the one file that imports boto3.

Credentials come from where AWS's own tools take them: variables, files, the machine's role.
"""

import logging
import re
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from everturn.errors import RuntimeUnavailable
from everturn_activities.blobs import Bucket, digest_of

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 10.0
REGION = "us-east-1"
"""Where neither a variable nor a file names one; servers other than Amazon's have none."""

_CODE = re.compile(r"[A-Za-z0-9.]{1,64}")

T = TypeVar("T")

log = logging.getLogger(__name__)


class S3Blobs:
    """Objects below a prefix of a bucket. boto3 is imported at the first use: it takes half a
    second, and its clients may be used by many threads."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._opening = threading.Lock()
        self._client: Any = None

    def put(self, content: bytes) -> str:
        digest = digest_of(content)
        self._asked(
            lambda client: client.put_object(
                Bucket=self._bucket.name, Key=self._key(digest), Body=content
            )
        )
        return digest

    def get(self, digest: str) -> bytes | None:
        content = self._asked(lambda client: self._content(client, digest))
        if content is not None and digest_of(content) != digest:
            log.warning("the blob %s in %s is not what it was", digest[:16], self._bucket)
            return None
        return content

    def delete(self, digest: str) -> None:
        self._asked(
            lambda client: client.delete_object(Bucket=self._bucket.name, Key=self._key(digest))
        )

    def _content(self, client: Any, digest: str) -> bytes | None:
        try:
            answer = client.get_object(Bucket=self._bucket.name, Key=self._key(digest))
        except client.exceptions.NoSuchKey:
            return None
        with answer["Body"] as body:
            content: bytes = body.read()
        return content

    def _key(self, digest: str) -> str:
        return "/".join(filter(None, (self._bucket.prefix, digest[:2], digest)))

    def _asked(self, ask: Callable[[Any], T]) -> T:
        from botocore import exceptions

        try:
            return ask(self._opened())
        except exceptions.ClientError as error:
            raise self._away(_answer(error)) from None
        except (exceptions.ConnectionError, exceptions.HTTPClientError):
            raise self._away("nobody answers there in time") from None
        except Exception as error:
            # Its own errors may quote a file of credentials, and an answer that is none of S3's
            # breaks it in many ways.
            raise self._away(f"the client says {type(error).__name__}") from None

    def _away(self, why: str) -> RuntimeUnavailable:
        at = f" at {self._bucket.endpoint}" if self._bucket.endpoint else ""
        return RuntimeUnavailable(f"The blobs in {self._bucket}{at} cannot be reached: {why}.")

    def _opened(self) -> Any:
        with self._opening:
            if self._client is None:
                self._client = _client(self._bucket.endpoint)
            return self._client


def _client(endpoint: str | None) -> Any:
    import boto3
    from botocore.config import Config

    session = boto3.session.Session()
    return session.client(
        "s3",
        endpoint_url=endpoint,
        region_name=session.region_name or REGION,
        config=Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=ANSWER_SECONDS,
            # Whoever asked decides what follows.
            retries={"total_max_attempts": 1},
            # Servers other than Amazon's have one name for all buckets, and do not all know its
            # newer checksums: the signature holds the content's, and what is read is compared.
            s3={
                "addressing_style": "path" if endpoint else "auto",
                "payload_signing_enabled": True,
            },
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


def _answer(error: Any) -> str:
    """What the server says: a status and its code, and none of its words."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", "")
    code = str(error.response.get("Error", {}).get("Code", ""))
    named = code if _CODE.fullmatch(code) and code != str(status) else ""
    return " ".join(filter(None, ("it answers", str(status), named)))
