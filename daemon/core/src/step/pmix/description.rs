//! What PMIx clients are told about a job: where its ranks run, and how they are numbered.
//!
//! A description has values of the whole job, an array for each node and for each program, and values of each rank. Two forms of the
//! last are on the wire: a client that is told about a job when it starts, spawns or connects gets an encoded block for each rank;
//! one that asks for it later gets an array. Both cost O(ranks) and are encoded once for each codec.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use rsd_proto::pmix::{Codec, DataType, Info, KVal, Proc, Value, Writer, keys};

use crate::NodeId;
use crate::taskmap::TaskMap;

/// What is known of a job.
#[derive(Debug, Clone)]
pub(super) struct Description {
    pub(super) namespace: String,
    /// Its number; empty: unknown.
    pub(super) job: String,
    pub(super) map: TaskMap,
    /// `node_names[i]` is the name of `map.nodes()[i]`.
    pub(super) node_names: Vec<String>,
    /// How many ranks run each program, in rank order.
    pub(super) app_sizes: Vec<u32>,
    pub(super) universe_size: u32,
    /// What only processes of the job are told.
    pub(super) inside: Option<Inside>,
}

/// What only processes of the job itself are told, about the node on which they run.
#[derive(Debug, Clone, Default)]
pub(super) struct Inside {
    /// The index of this node.
    pub(super) node: u32,
    /// Whether more ranks than cores run here.
    pub(super) oversubscribed: bool,
    /// The directory for files of the job; empty: none.
    pub(super) directory: String,
    /// Each program's words and working directory.
    pub(super) apps: Vec<(String, String)>,
    /// The cpus of the node's ranks that are bound, as hwloc writes lists of them.
    pub(super) cpusets: BTreeMap<u32, String>,
    /// The process that spawned the job.
    pub(super) parent: Option<Proc>,
}

impl Description {
    /// Returns the description with a block for each rank.
    pub(super) fn blob(&self, codec: Codec) -> Bytes {
        let mut writer = Writer::new(codec);
        self.of_job().iter().for_each(|kval| writer.one(kval));
        self.of_nodes().iter().for_each(|kval| writer.one(kval));
        self.of_apps().iter().for_each(|kval| writer.one(kval));
        self.each_rank(|rank, infos| {
            let mut block = Writer::new(codec);
            block.one_uint32(rank);
            infos.into_iter().for_each(|info| block.one(&KVal { key: info.key, value: info.value }));
            writer.one(&KVal::new(keys::PROC_BLOB, Value::ByteObject(block.finish())));
        });
        writer.finish().into()
    }

    /// Returns the description with an array for each rank.
    pub(super) fn arrays(&self, codec: Codec) -> Bytes {
        let mut writer = Writer::new(codec);
        self.of_job().iter().for_each(|kval| writer.one(kval));
        self.each_rank(|rank, infos| {
            let array = [Info::new(keys::RANK, Value::Rank(rank))].into_iter().chain(infos).collect();
            writer.one(&KVal::new(keys::PROC_DATA, Value::infos(array)));
        });
        writer.finish().into()
    }

    /// Returns a value of the whole job.
    pub(super) fn value(&self, key: &str) -> Option<Value> {
        self.of_job().into_iter().find(|kval| kval.key == key).map(|kval| kval.value)
    }

    /// Returns a value of a rank.
    pub(super) fn value_of(&self, wanted: u32, key: &str) -> Option<Value> {
        let mut found = None;
        self.each_rank(|rank, infos| {
            if rank == wanted {
                found = infos.into_iter().find(|info| info.key == key).map(|info| info.value);
            }
        });
        found
    }

    /// Returns the ranks on a node, by its index.
    pub(super) fn ranks_on(&self, node: u32) -> Vec<u32> {
        self.map.nodes().get(node as usize).map_or_else(Vec::new, |id| self.map.ranks_on(*id).collect())
    }

    fn name(&self, node: usize) -> &str {
        self.node_names.get(node).map_or("", String::as_str)
    }

    fn of_job(&self) -> Vec<KVal> {
        let text = |key, value: &str| KVal::new(key, Value::text(value));
        let number = |key, value: u32| KVal::new(key, Value::Uint32(value));
        let (size, apps) = (self.map.size(), self.app_sizes.len() as u32);
        let universe = self.universe_size.max(size);
        let mut values = vec![
            text(keys::JOB_ID, if self.job.is_empty() { &self.namespace } else { &self.job }),
            number(keys::JOB_SIZE, size),
            number(keys::UNIVERSE_SIZE, universe),
            number(keys::MAX_PROCS, universe),
            number(keys::JOB_NUM_APPS, apps),
            number(keys::NUM_NODES, self.map.nodes().len() as u32),
            number(keys::NUM_SLOTS, universe),
            text(keys::NODE_LIST, &self.node_names.join(",")),
        ];
        if self.app_sizes.len() > 1 {
            // Open MPI's own names for the programs of a job.
            let join = |numbers: &mut dyn Iterator<Item = u32>| {
                numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
            };
            values.push(text("OMPI_APP_SIZES", &join(&mut self.app_sizes.iter().copied())));
            values.push(text("OMPI_FIRST_RANKS", &join(&mut self.first_ranks().into_iter())));
        }
        let Some(inside) = &self.inside else { return values };
        let here = self.ranks_on(inside.node);
        values.extend([
            number(keys::LOCAL_SIZE, here.len() as u32),
            number(keys::NODE_SIZE, here.len() as u32),
            number(keys::NODE_ID, inside.node),
            text(keys::HOSTNAME, self.name(inside.node as usize)),
            text(keys::LOCAL_PEERS, &listed(&here)),
        ]);
        if inside.oversubscribed {
            // Open MPI takes its presence for true.
            values.push(KVal::new(keys::NODE_OVERSUBSCRIBED, Value::Bool(true)));
        }
        if !inside.directory.is_empty() {
            values.push(text(keys::TMPDIR, &inside.directory));
            values.push(text(keys::NSDIR, &inside.directory));
            values.push(KVal::new(keys::TDIR_RMCLEAN, Value::Bool(true)));
        }
        if let [(words, wdir)] = &inside.apps[..]
            && !wdir.is_empty()
        {
            values.push(text(keys::APP_ARGV, words));
            values.push(text(keys::WDIR, wdir));
        }
        if let Some(parent) = &inside.parent {
            values.push(KVal::new(keys::PARENT, Value::Proc(parent.clone())));
            values.push(KVal::new(keys::SPAWNED, Value::Bool(true)));
        }
        values
    }

    fn of_nodes(&self) -> Vec<KVal> {
        let node = |(index, id): (usize, &NodeId)| {
            let ranks: Vec<u32> = self.map.ranks_on(*id).collect();
            KVal::new(
                keys::NODE_INFO_ARRAY,
                Value::infos(vec![
                    Info::new(keys::HOSTNAME, Value::text(self.name(index))),
                    Info::new(keys::NODE_ID, Value::Uint32(index as u32)),
                    Info::new(keys::LOCAL_SIZE, Value::Uint32(ranks.len() as u32)),
                    Info::new(keys::NODE_SIZE, Value::Uint32(ranks.len() as u32)),
                    Info::new(keys::LOCAL_LEADER, Value::Rank(ranks.first().copied().unwrap_or(0))),
                    Info::new(keys::LOCAL_PEERS, Value::text(listed(&ranks))),
                ]),
            )
        };
        self.map.nodes().iter().enumerate().map(node).collect()
    }

    fn of_apps(&self) -> Vec<KVal> {
        let told = |index: usize| self.inside.as_ref().and_then(|inside| inside.apps.get(index));
        let app = |(index, (size, first)): (usize, (&u32, u32))| {
            let mut infos = vec![
                Info::new(keys::APP_NUMBER, Value::Uint32(index as u32)),
                Info::new(keys::APP_SIZE, Value::Uint32(*size)),
                Info::new(keys::APP_LEADER, Value::Rank(first)),
            ];
            if let Some((words, wdir)) = told(index).filter(|(_, wdir)| !wdir.is_empty()) {
                infos.push(Info::new(keys::APP_ARGV, Value::text(words.clone())));
                infos.push(Info::new(keys::WDIR, Value::text(wdir.clone())));
            }
            KVal::new(keys::APP_INFO_ARRAY, Value::infos(infos))
        };
        self.app_sizes.iter().zip(self.first_ranks()).enumerate().map(app).collect()
    }

    fn first_ranks(&self) -> Vec<u32> {
        let sizes = self.app_sizes.iter();
        sizes.scan(0, |next, size| Some(std::mem::replace(next, *next + size))).collect()
    }

    /// Passes each rank's values, in rank order. Cost: one pass over the ranks.
    fn each_rank(&self, mut pass: impl FnMut(u32, Vec<Info>)) {
        let mut next_local = vec![0_u16; self.map.nodes().len()];
        let (mut app, mut app_from) = (0, 0);
        let index_of: HashMap<NodeId, usize> =
            self.map.nodes().iter().enumerate().map(|(index, id)| (*id, index)).collect();
        for rank in 0..self.map.size() {
            let node = self.map.node_of(rank).and_then(|id| index_of.get(&id)).copied().unwrap_or(0);
            while self.app_sizes.get(app).is_some_and(|size| rank - app_from >= *size) {
                app_from += self.app_sizes[app];
                app += 1;
            }
            let local = next_local[node];
            next_local[node] = local.wrapping_add(1);
            let mut infos = vec![
                Info::new(keys::LOCAL_RANK, Value::Uint16(local)),
                Info::new(keys::NODE_RANK, Value::Uint16(local)),
                Info::new(keys::GLOBAL_RANK, Value::Rank(rank)),
                Info::new(keys::APP_RANK, Value::Rank(rank - app_from)),
                Info::new(keys::APP_NUMBER, Value::Uint32(app as u32)),
                Info::new(keys::NODE_ID, Value::Uint32(node as u32)),
                Info::new(keys::HOSTNAME, Value::text(self.name(node))),
                Info::new(keys::REINCARNATION, Value::Uint32(0)),
            ];
            if let Some(inside) = self.inside.as_ref().filter(|inside| inside.node as usize == node) {
                if let Some(cpus) = inside.cpusets.get(&rank) {
                    infos.push(Info::new(keys::CPUSET, Value::text(cpus.clone())));
                }
                if !inside.directory.is_empty() {
                    infos.push(Info::new(keys::PROC_DIR, Value::text(format!("{}/{rank}", inside.directory))));
                }
            }
            if let Some(parent) = self.inside.as_ref().and_then(|inside| inside.parent.as_ref()) {
                infos.push(Info::new(keys::PARENT, Value::Proc(parent.clone())));
                infos.push(Info::new(keys::SPAWNED, Value::Bool(true)));
            }
            pass(rank, infos);
        }
    }
}

/// Returns ranks separated by commas.
fn listed(ranks: &[u32]) -> String {
    ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// Returns an array of processes.
pub(super) fn procs(procs: &[Proc]) -> Value {
    Value::array(DataType::Proc, procs.iter().cloned().map(Value::Proc).collect())
}
