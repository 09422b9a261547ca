//! The gRPC `Pmi` service, for ranks that speak gRPC.

use rsd_core::rsd::{Answer, Call, Caller, PmiOp};
use rsd_proto::services::pmi_server::Pmi;
use rsd_proto::transport::{exit, refusal};
use rsd_proto::v1::{PmiDone, PmiFence, PmiGet, PmiInfo, PmiPut, PmiRank, PmiResult, PmiValue};
use tonic::{Code, Request, Response, Status};

use super::callers::Callers;
use super::{Reply, status_of, unexpected};
use crate::door::Door;

/// The service.
#[derive(Debug, Clone)]
pub(crate) struct PmiService {
    pub(crate) door: Door,
    pub(crate) callers: Callers,
}

impl PmiService {
    async fn ask(&self, caller: Caller, who: Option<PmiRank>, op: PmiOp) -> Result<PmiResult, Status> {
        let Some(PmiRank { job, rank, namespace }) = who else {
            return Err(refusal(Code::InvalidArgument, exit::USAGE, "the call names no rank"));
        };
        match self.door.call(caller, Call::Pmi { job, rank, namespace, op }).await {
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
        let caller = self.callers.of(&request)?;
        let PmiPut { who, key, value } = request.into_inner();
        self.ask(caller, who, PmiOp::Put(key, value)).await?;
        Ok(Response::new(PmiDone {}))
    }

    async fn get(&self, request: Request<PmiGet>) -> Reply<PmiValue> {
        let caller = self.callers.of(&request)?;
        let PmiGet { who, key } = request.into_inner();
        match self.ask(caller, who, PmiOp::Get(key)).await?.value {
            Some(value) => Ok(Response::new(PmiValue { value })),
            None => Err(Status::not_found("unknown key: no fence has delivered it")),
        }
    }

    async fn fence(&self, request: Request<PmiFence>) -> Reply<PmiDone> {
        let caller = self.callers.of(&request)?;
        let PmiFence { job, rank, namespace, attempt } = request.into_inner();
        self.ask(caller, Some(PmiRank { job, rank, namespace }), PmiOp::Fence(attempt)).await?;
        Ok(Response::new(PmiDone {}))
    }

    async fn info(&self, request: Request<PmiRank>) -> Reply<PmiInfo> {
        let caller = self.callers.of(&request)?;
        let result = self.ask(caller, Some(request.into_inner()), PmiOp::Info).await?;
        Ok(Response::new(result.info.unwrap_or_default()))
    }
}
