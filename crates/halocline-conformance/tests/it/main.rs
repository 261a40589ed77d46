//! Tests of whole jobs that are not cases of the suite. One program, so that they link once.

mod calls;
mod device_guards;
mod errors;
mod faults;
mod forged;
mod hazards;
mod holding;
mod leave;
mod left_packets;
mod ll;
mod mapped;
mod messages;
mod mpi;
mod narrowed;
mod own_failures;
mod packets;
mod programs;
mod queues;
mod random;
mod refused;
mod scheduled;
mod shm;
mod silent;
mod simulated;
mod tampered;
mod troubled;
