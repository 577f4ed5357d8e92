"""POST /mutate: an AdmissionReview in, an AdmissionReview out."""

from __future__ import annotations

from claim_mutator.admission import Admission, BadReview
from kube.server import Request, Response


class Webhook:
    """While `draining`, answers ask the API server to connect anew, to another replica."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.draining = False

    async def __call__(self, request: Request) -> Response:
        if request.path != "/mutate":
            return Response(404, b"only /mutate is here\n")
        if request.method != "POST":
            return Response(405, b"POST an AdmissionReview\n")
        if request.content_type != "application/json":
            return Response(415, b"the body must be application/json\n")
        try:
            return Response(200, await self._admission.review(request.body), "application/json")
        except BadReview as error:
            return Response(400, f"{error}\n".encode())
