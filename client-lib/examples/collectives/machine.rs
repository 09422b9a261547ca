//! What a machine's messages and copies cost. Times are in nanoseconds, rates in bytes per nanosecond (GB/s).

/// A cluster of like nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    pub(crate) name: &'static str,
    pub(crate) short: &'static str,
    /// Between ranks of a node.
    pub(crate) inside: Link,
    /// Between nodes.
    pub(crate) outside: Link,
    /// A node sends and receives so many streams at a time, each at `port`.
    pub(crate) ports: usize,
    /// The rate of a port.
    pub(crate) port: f64,
    /// A port's time for a message, however short.
    pub(crate) gap: f64,
    /// One core copies, and combines two operands.
    pub(crate) copy: f64,
    pub(crate) combine: f64,
    /// All cores of a node copy.
    pub(crate) memory: f64,
    /// A core's time for a step of a schedule that is not a message.
    pub(crate) step: f64,
}

/// A way of messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    /// A core's time to send a message, and to receive it, whatever its length.
    pub(crate) send: f64,
    pub(crate) recv: f64,
    /// From the sender's to the receiver's core.
    pub(crate) latency: f64,
    /// A core sends or receives bytes.
    pub(crate) core: f64,
}

/// Longer messages wait for the receiver.
pub(crate) const EAGER: u64 = 64 << 10;

/// Shared memory as measured on this project's machines (tests/bench/mpi/README.md: 0.13 to 0.34 us for 8 bytes, 6 to 7 us for 64 KiB). The
/// bandwidth of a node's memory is that of eight channels of DDR4-3200, half of it read and half written.
const SHARED: Link = Link { send: 60.0, recv: 60.0, latency: 150.0, core: 16.0 };

/// Nodes that are connected as the kernel's loopback connects daemons of one machine, measured as above: 3.8 to 5.4 us for 8 bytes, 102 to
/// 164 us for 1 MiB. A port is as fast as one core.
pub(crate) const LOOPBACK: Machine = Machine {
    name: "TCP as over loopback",
    short: "loopback",
    inside: SHARED,
    outside: Link { send: 1_200.0, recv: 1_200.0, latency: 2_200.0, core: 10.0 },
    ports: 1,
    port: 10.0,
    gap: 100.0,
    copy: 16.0,
    combine: 8.0,
    memory: 100.0,
    step: 15.0,
};

/// TCP over Ethernet of 100 Gb/s. A core moves 42 Gb/s (Cai et al., Understanding Host Network Stack Overheads, SIGCOMM 2021);
/// a short message takes about 11 us one way (Ousterhout, A Linux Kernel Implementation of the Homa Transport Protocol, ATC 2021, reports
/// 23 us there and back).
pub(crate) const ETHERNET: Machine = Machine {
    name: "TCP over 100 Gb/s",
    short: "ethernet",
    outside: Link { send: 1_500.0, recv: 2_000.0, latency: 8_000.0, core: 5.25 },
    port: 12.5,
    gap: 30.0,
    ..LOOPBACK
};

pub(crate) const MACHINES: [&Machine; 2] = [&ETHERNET, &LOOPBACK];
