//! Whole DVMs in one thread with a virtual clock: daemons, steps and ranks, with links that are cut and nodes that die.
//!
//! Every run follows from one seed, which a failure prints. `SIMULATION_SEEDS=37` repeats it, and `SIMULATION_TRACE=1` prints the
//! events. A run ends when no event is pending, so an endless wait or a storm of messages is found too.
//!
//! - [`world`], [`steps`], [`ranks`]: the model. [`checks`]: what must hold at its end.
//! - [`messages`]: how many messages a job costs. [`costs`]: how much time an input costs. [`jobs`]: jobs without faults.
//!   [`dialects`], [`pmi2`]: ranks that speak PMI-2. [`names`]: names that ranks publish. [`between_jobs`]: collectives, data and events of
//!   processes of several jobs. [`families`]: jobs that ranks spawn. [`bindings`]: the cpus, memory and GPUs of ranks. [`alone`]: ranks
//!   that cannot find each other.
//!   [`held`]: results of fences that do not go to all nodes. [`faults`]: jobs with faults. [`survivors`]: jobs that continue without lost nodes. [`tree`]: the tree of daemons heals.
//!   [`parents`]: who takes a joining daemon. [`members`], [`groups`]: running processes, and the groups that they join.
//!   [`restarts`]: the state that a head keeps. [`standbys`]: heads on other machines. [`lease`]: which of them acts, by a
//!   lease. [`values`]: values that processes exchange by
//!   name. [`waits`]: what jobs wait for. [`queueing`]: when queued jobs start. [`usage`]: what ranks have used.

mod alone;
mod between_jobs;
mod bindings;
mod checks;
mod costs;
mod dialects;
mod families;
mod faults;
mod groups;
mod held;
mod jobs;
mod journal;
mod lease;
mod members;
mod messages;
mod names;
mod parents;
mod pmi2;
mod queueing;
mod ranks;
mod restarts;
mod rng;
mod standbys;
mod steps;
mod survivors;
mod tree;
mod usage;
mod users;
mod values;
mod waits;
mod world;
