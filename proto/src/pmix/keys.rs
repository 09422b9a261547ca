//! The names of PMIx's reserved keys and attributes that the server reads or sets.

/// Reserved keys begin with this.
pub const RESERVED: &str = "pmix";

/// Returns whether only the server sets values under this key.
pub fn is_reserved(key: &str) -> bool {
    key.starts_with(RESERVED)
}

macro_rules! keys {
    ($($name:ident = $key:literal;)*) => {
        $(#[doc = concat!("`", $key, "`")] pub const $name: &str = $key;)*
    };
}

keys! {
    APP_ARGV = "pmix.app.argv";
    APP_INFO_ARRAY = "pmix.app.arr";
    APP_LEADER = "pmix.aldr";
    APP_NUMBER = "pmix.appnum";
    APP_RANK = "pmix.apprank";
    APP_SIZE = "pmix.app.size";
    BIND_TO = "pmix.bindto";
    CLIENT_UID = "pmix.euid";
    CLIENT_GID = "pmix.egid";
    COLLECT_DATA = "pmix.collect";
    CLEANUP_LEAVE_TOP = "pmix.clnup.lvtop";
    CLEANUP_RECURSIVE = "pmix.clnup.recurse";
    CPUSET = "pmix.cpuset";
    DATA_SCOPE = "pmix.scope";
    ENVAR_ADD = "pmix.envar.add";
    ENVAR_APPEND = "pmix.envar.appnd";
    ENVAR_PREPEND = "pmix.envar.prepnd";
    ENVAR_SET = "pmix.envar.set";
    ENVAR_UNSET = "pmix.envar.unset";
    EVENT_AFFECTED_PROC = "pmix.evproc";
    EVENT_AFFECTED_PROCS = "pmix.evaffected";
    EVENT_CUSTOM_RANGE = "pmix.evrange";
    EVENT_DO_NOT_CACHE = "pmix.evnocache";
    EVENT_NON_DEFAULT = "pmix.evnondef";
    EXIT_CODE = "pmix.exit.code";
    GET_REFRESH = "pmix.get.refresh";
    GLOBAL_RANK = "pmix.grank";
    GROUP_ASSIGN_CONTEXT = "pmix.grp.actxid";
    GROUP_CONTEXT = "pmix.grp.ctxid";
    GROUP_ENDPOINT_DATA = "pmix.grp.endpt";
    GROUP_INFO = "pmix.grp.info";
    GROUP_LOCAL_ID = "pmix.grp.lclid";
    GROUP_LOCAL_ONLY = "pmix.grp.lcl";
    GROUP_MEMBERS = "pmix.grp.mbrs";
    HOST = "pmix.host";
    HOSTFILE = "pmix.hostfile";
    HOSTNAME = "pmix.hname";
    IMMEDIATE = "pmix.immediate";
    JOB_ID = "pmix.jobid";
    JOB_INFO_ARRAY = "pmix.job.arr";
    JOB_NUM_APPS = "pmix.job.napps";
    JOB_SIZE = "pmix.job.size";
    LOCAL_CPUSETS = "pmix.lcpus";
    LOCAL_LEADER = "pmix.lldr";
    LOCAL_PEERS = "pmix.lpeers";
    LOCAL_PROCS = "pmix.lprocs";
    LOCAL_RANK = "pmix.lrank";
    LOCAL_SIZE = "pmix.local.size";
    LOCALITY = "pmix.locstr";
    MAP_BY = "pmix.mapby";
    MAX_PROCS = "pmix.max.size";
    NAMESPACE = "pmix.nspace";
    NODE_ID = "pmix.nodeid";
    NODE_INFO_ARRAY = "pmix.node.arr";
    NODE_LIST = "pmix.nlist";
    NODE_OVERSUBSCRIBED = "pmix.ndosub";
    NODE_RANK = "pmix.nrank";
    NODE_SIZE = "pmix.node.size";
    NSDIR = "pmix.nsdir";
    NUM_NODES = "pmix.num.nodes";
    NUM_SLOTS = "pmix.num.slots";
    PARENT = "pmix.parent";
    PERSISTENCE = "pmix.persist";
    PPR = "pmix.ppr";
    PROC_BLOB = "pmix.pblob";
    PROC_DATA = "pmix.pdata";
    PROC_DIR = "pmix.pdir";
    PROC_ID = "pmix.procid";
    PROC_PID = "pmix.ppid";
    PSET_NAMES = "pmix.pset.nms";
    QUALIFIED_VALUE = "pmix.qual.val";
    QUERY_GROUP_MEMBERS = "pmix.qry.pgrpmems";
    QUERY_GROUP_NAMES = "pmix.qry.pgrp";
    QUERY_LOCAL_PROC_TABLE = "pmix.qry.lptable";
    QUERY_NAMESPACES = "pmix.qry.ns";
    QUERY_NUM_GROUPS = "pmix.qry.pgrpnum";
    QUERY_NUM_PSETS = "pmix.qry.psetnum";
    QUERY_PROC_TABLE = "pmix.qry.ptable";
    QUERY_PSET_MEMBERS = "pmix.qry.pmems";
    QUERY_PSET_NAMES = "pmix.qry.psets";
    QUERY_SPAWN_SUPPORT = "pmix.qry.spawn";
    RANGE = "pmix.range";
    RANK = "pmix.rank";
    REINCARNATION = "pmix.reinc";
    REQUIRED_KEY = "pmix.req.key";
    SESSION_ID = "pmix.session.id";
    SPAWNED = "pmix.spawned";
    TDIR_RMCLEAN = "pmix.tdir.rmclean";
    TIMEOUT = "pmix.timeout";
    TMPDIR = "pmix.tmpdir";
    UNIVERSE_SIZE = "pmix.univ.size";
    WAIT = "pmix.wait";
    WDIR = "pmix.wdir";
    LOG_STDERR = "pmix.log.stderr";
    LOG_STDOUT = "pmix.log.stdout";
    LOG_SYSLOG = "pmix.log.syslog";
    JOB_CONTROL_KILL = "pmix.jctrl.kill";
    JOB_CONTROL_SIGNAL = "pmix.jctrl.sig";
    JOB_CONTROL_TERMINATE = "pmix.jctrl.term";
    REGISTER_CLEANUP = "pmix.reg.cleanup";
    REGISTER_CLEANUP_DIR = "pmix.reg.cleanupdir";
    HWLOC_XML_V2 = "pmix.hwlocxml2";
}
