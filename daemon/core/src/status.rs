//! The numbers that PMIx gives to failures (its `pmix_common.h`), for requests of PMIx servers to the head and to each other.

/// The request is complete.
pub const SUCCESS: i32 = 0;
/// The caller may not do this.
pub const NO_PERMISSIONS: i32 = -23;
/// The caller's time limit has passed.
pub const TIMEOUT: i32 = -24;
/// The request is invalid.
pub const BAD_PARAM: i32 = -27;
/// A limit of the DVM is reached.
pub const OUT_OF_RESOURCE: i32 = -29;
/// There is no such job, process or data.
pub const NOT_FOUND: i32 = -46;
/// rsd does not do this.
pub const NOT_SUPPORTED: i32 = -47;
/// Some of the keys were found.
pub const PARTIAL_SUCCESS: i32 = -52;
/// A key is already published on this range.
pub const DUPLICATE_KEY: i32 = -53;
/// A process has ended, or its node is lost.
pub const LOST_CONNECTION: i32 = -61;

/// A request that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// One of the numbers above.
    pub(crate) status: i32,
    /// Why: a sentence.
    pub(crate) why: String,
}

impl Failure {
    pub(crate) fn new(status: i32, why: impl Into<String>) -> Failure {
        Failure { status, why: why.into() }
    }
}
