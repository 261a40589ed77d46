//! Whether the plans of all ranks fit each other. The fuzz target `patches` checks this, too.

use halocline_plan::PatternPlan;

/// Checks that each plan is valid, and that each rank expects what the others send.
pub fn check(plans: &[PatternPlan]) {
    for (rank, plan) in plans.iter().enumerate() {
        plan.check_patches().unwrap_or_else(|error| panic!("rank {rank}: {error}"));
        for peer in &plan.peers {
            let back = plans[peer.rank].peers.iter().find(|back| back.rank == rank);
            let back = back.unwrap_or_else(|| panic!("rank {} does not know rank {rank}", peer.rank));
            assert_eq!(peer.sends, back.receives, "from rank {rank} to rank {}", peer.rank);
            assert_eq!(peer.receives, back.sends, "from rank {} to rank {rank}", peer.rank);
        }
    }
}
