//! The variables by which PMIx clients find their server, and those that Open MPI's launcher sets for its ranks.
//!
//! A rank gets these beside PMI-1's, because nothing shows for certain which library a program will load: an interpreter opens it
//! while it runs. Every library takes what it knows. Some need a word of explanation, all found by trying all libraries:
//!
//! - MPICH 5 refuses to start when it sees both PMI-1 and PMIx, unless `MPIR_CVAR_PMI_VERSION` says which one to use.
//! - Open MPI 4.1 does not look for a PMIx server unless `OMPI_MCA_schizo` names a launcher that is not its own default.
//! - Ranks of Open MPI 4.1 spin while they wait, unless `OMPI_MCA_mpi_oversubscribe` tells them that they share cores: HPCC with four
//!   ranks on two cores takes 196 s instead of 11. Version 5 asks the server.
//! - Open MPI 4.1 names its shared memory after the host. Daemons of one machine are several nodes of one host name, and ranks that
//!   take each other's memory for that of a neighbour crash, so each node has a directory of its own for it.
//! - On a node without a [fabric], Open MPI 5 asks libfabric for one twice, in vain, and then sleeps for a second:
//!   MPI_Init takes 1.05 s instead of 10 ms. It is told not to ask.
//!
//! `OMPI_UNIVERSE_SIZE` is missing on purpose: Open MPI 4.1's `mpirun`, which a script may call within a job, refuses to start when it is
//! set.

use super::fabric;
use crate::pmi::environment::Place;

/// Where a step serves PMIx on loopback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its port.
    pub port: u16,
    /// A directory for the files of the job's ranks, which need not exist; empty: none.
    pub directory: String,
    /// A directory in memory for what the ranks share, which exists before they need it; empty: none.
    pub shared: String,
    /// How many cores the ranks may use.
    pub cores: u32,
    /// The variables that tell Open MPI that this node has no fabric, from [`fabric::absent`].
    pub no_fabric: Vec<(&'static str, String)>,
}

/// The program that a rank runs, as Open MPI's variables describe it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Program {
    /// Its name.
    pub command: String,
    /// Its arguments.
    pub args: String,
    /// Its working directory.
    pub wdir: String,
    /// How many ranks run each program of the job.
    pub sizes: Vec<u32>,
}

/// The version that clients may assume of the server: the oldest whose requests are all served.
const VERSION: &str = "4.2.2";

impl Server {
    /// Returns the variables of a rank.
    pub fn variables(&self, place: &Place<'_>, program: &Program) -> Vec<(&'static str, String)> {
        let uri = format!("rsd.{};tcp4://127.0.0.1:{}", place.node_index, self.port);
        let list = |numbers: &mut dyn Iterator<Item = u32>| {
            numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
        };
        let firsts = program.sizes.iter().scan(0, |next, size| Some(std::mem::replace(next, *next + size)));
        let mut variables = vec![
            ("PMIX_NAMESPACE", place.namespace.to_owned()),
            ("PMIX_RANK", place.rank.to_string()),
            ("PMIX_SERVER_URI41", uri.clone()),
            ("PMIX_SERVER_URI3", uri),
            // Only this store needs no memory that is shared with the server.
            ("PMIX_GDS_MODULE", "hash".into()),
            ("PMIX_SECURITY_MODE", "native".into()),
            ("PMIX_BFROP_BUFFER_TYPE", "PMIX_BFROP_BUFFER_NON_DESC".into()),
            ("PMIX_HOSTNAME", place.node_name.to_owned()),
            ("PMIX_VERSION", VERSION.into()),
            ("OMPI_COMM_WORLD_RANK", place.rank.to_string()),
            ("OMPI_COMM_WORLD_SIZE", place.size.to_string()),
            ("OMPI_COMM_WORLD_LOCAL_RANK", place.local_rank.to_string()),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", place.local_size.to_string()),
            ("OMPI_COMM_WORLD_NODE_RANK", place.local_rank.to_string()),
            ("OMPI_NUM_APP_CTX", program.sizes.len().to_string()),
            ("OMPI_APP_CTX_NUM_PROCS", list(&mut program.sizes.iter().copied())),
            ("OMPI_FIRST_RANKS", list(&mut firsts.into_iter())),
            ("OMPI_COMMAND", program.command.clone()),
            ("OMPI_ARGV", program.args.clone()),
            ("OMPI_MCA_initial_wdir", program.wdir.clone()),
        ];
        if !self.directory.is_empty() {
            variables.push(("OMPI_FILE_LOCATION", format!("{}/{}", self.directory, place.rank)));
        }
        variables
    }

    /// Returns what a rank gets unless its user has set it, if this many ranks run here and its user has set variables of these names.
    pub fn unless_set(&self, local_size: u32, given: &[&[u8]]) -> Vec<(&'static str, &str)> {
        let mut variables = vec![("MPIR_CVAR_PMI_VERSION", "1"), ("OMPI_MCA_schizo", "ompi")];
        if local_size > self.cores {
            variables.push(("OMPI_MCA_mpi_oversubscribe", "1"));
        }
        if !self.shared.is_empty() {
            variables.push(("OMPI_MCA_btl_vader_backing_directory", &self.shared));
        }
        if !given.iter().any(|name| fabric::is_chosen_by(name)) {
            variables.extend(self.no_fabric.iter().map(|(name, value)| (*name, value.as_str())));
        }
        variables.retain(|(name, _)| !given.contains(&name.as_bytes()));
        variables
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmi::environment::is_launcher_variable;

    #[test]
    fn no_variable_of_a_server_is_inherited() {
        let place = Place {
            job: 7,
            rank: 3,
            size: 5,
            local_rank: 1,
            local_size: 2,
            node_index: 1,
            node_name: "b",
            namespace: "rsd-a.b",
            node_address: "",
        };
        let server = Server {
            port: 4711,
            directory: "/tmp/x".into(),
            shared: "/dev/shm/x".into(),
            cores: 1,
            no_fabric: Vec::new(),
        };
        let program = Program { sizes: vec![2, 3], ..Program::default() };
        let variables = server.variables(&place, &program);
        assert!(variables.iter().all(|(name, _)| is_launcher_variable(name.as_bytes())), "{variables:?}");
        for (name, value) in [
            ("PMIX_SERVER_URI3", "rsd.1;tcp4://127.0.0.1:4711"),
            ("OMPI_FIRST_RANKS", "0 2"),
            ("OMPI_APP_CTX_NUM_PROCS", "2 3"),
            ("OMPI_FILE_LOCATION", "/tmp/x/3"),
        ] {
            assert!(variables.contains(&(name, value.to_owned())), "{name}: {variables:?}");
        }
    }

    #[test]
    fn what_the_user_has_set_stays() {
        let mut server =
            Server { port: 1, directory: String::new(), shared: "/dev/shm/x".into(), cores: 1, no_fabric: Vec::new() };
        let names = |server: &Server, local_size, given: &[&[u8]]| -> Vec<&'static str> {
            server.unless_set(local_size, given).into_iter().map(|(name, _)| name).collect()
        };
        let all = names(&server, 2, &[]);
        // Two of these are the same for all jobs.
        assert!(all[2..].iter().all(|name| is_launcher_variable(name.as_bytes())), "{all:?}");
        assert_eq!(
            (all.len(), names(&server, 1, &[]).len(), names(&server, 2, &[b"OMPI_MCA_schizo"]).len()),
            (4, 3, 3)
        );

        server.no_fabric = ["OMPI_MCA_btl", "OMPI_MCA_mtl"].map(|name| (name, "^ofi".to_owned())).to_vec();
        let none = |given: &[u8]| names(&server, 1, &[given]).iter().filter(|name| name.contains("tl")).count() - 1;
        assert_eq!([&b"PATH"[..], b"OMPI_MCA_btl_tcp_if_include"].map(none), [2, 2]);
        for chosen in
            ["OMPI_MCA_btl", "OMPI_MCA_mtl", "OMPI_MCA_pml", "OMPI_MCA_opal_common_ofi_provider_include", "FI_PROVIDER"]
        {
            assert_eq!(none(chosen.as_bytes()), 0, "{chosen}");
        }
    }
}
