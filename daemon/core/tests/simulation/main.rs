//! Whole DVMs in one thread with a virtual clock: daemons, steps and ranks, links that cut and come back, nodes that die.
//!
//! Every run is made of one seed, which a failure names; `SIMULATION_SEEDS=37` repeats it, and with `SIMULATION_TRACE=1`
//! prints what happens. A run ends when nothing is left to happen, so a wait without an end or a storm of messages is
//! found too.
//!
//! - [`world`], [`steps`], [`ranks`]: the model. [`checks`]: what must hold at its end.
//! - [`messages`]: how many messages a job costs. [`costs`]: how much time an input costs. [`jobs`]: lives of jobs. [`names`]: what ranks publish. [`families`]: jobs that
//!   they spawn. [`bindings`]: what
//!   ranks have of their nodes. [`faults`]: what may break meanwhile. [`members`], [`groups`]: processes that run already, and
//!   the groups that they join. [`restarts`]: what a head knows again. [`values`]: values that processes leave for each other.

mod bindings;

mod checks;
mod costs;
mod families;
mod faults;
mod groups;
mod jobs;
mod members;
mod messages;
mod names;
mod ranks;
mod restarts;
mod rng;
mod steps;
mod values;
mod world;
