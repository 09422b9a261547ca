//! The gRPC `Pmi` service, for ranks that speak gRPC.

use rsd_core::rsd::{Answer, Call, PmiOp};
use rsd_proto::services::pmi_server::Pmi;
use rsd_proto::transport::{exit, refusal};
use rsd_proto::v1::{PmiDone, PmiFence, PmiGet, PmiInfo, PmiPut, PmiRank, PmiResult, PmiValue};
use tonic::{Code, Request, Response, Status};

use super::{Reply, status_of, unexpected};
use crate::door::Door;

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct PmiService {
    pub(crate) door: Door,
}

impl PmiService {
    async fn ask(&self, who: Option<PmiRank>, op: PmiOp) -> Result<PmiResult, Status> {
        let Some(PmiRank { job, rank, namespace }) = who else {
            return Err(refusal(Code::InvalidArgument, exit::USAGE, "the call names no rank"));
        };
        match self.door.call(Call::Pmi { job, rank, namespace, op }).await {
            Answer::Pmi(result) if result.error.is_empty() => Ok(*result),
            Answer::Pmi(result) => Err(refusal(Code::InvalidArgument, exit::USAGE, result.error)),
            Answer::Refused(refused) => Err(status_of(refused)),
            other => Err(unexpected(&other)),
        }
    }
}

#[tonic::async_trait]
impl Pmi for PmiService {
    async fn put(&self, request: Request<PmiPut>) -> Reply<PmiDone> {
        let PmiPut { who, key, value } = request.into_inner();
        self.ask(who, PmiOp::Put(key, value)).await?;
        Ok(Response::new(PmiDone {}))
    }

    async fn get(&self, request: Request<PmiGet>) -> Reply<PmiValue> {
        let PmiGet { who, key } = request.into_inner();
        match self.ask(who, PmiOp::Get(key)).await?.value {
            Some(value) => Ok(Response::new(PmiValue { value })),
            None => Err(Status::not_found("unknown key: no fence has delivered it")),
        }
    }

    async fn fence(&self, request: Request<PmiFence>) -> Reply<PmiDone> {
        let PmiFence { job, rank, namespace, attempt } = request.into_inner();
        self.ask(Some(PmiRank { job, rank, namespace }), PmiOp::Fence(attempt)).await?;
        Ok(Response::new(PmiDone {}))
    }

    async fn info(&self, request: Request<PmiRank>) -> Reply<PmiInfo> {
        let result = self.ask(Some(request.into_inner()), PmiOp::Info).await?;
        Ok(Response::new(result.info.unwrap_or_default()))
    }
}
