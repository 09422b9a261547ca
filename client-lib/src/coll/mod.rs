//! Collective operations as schedules.
