//! Programs that the compiler must refuse: one in each file of `tests/refused_by_compiler`, beside what the compiler says. After a change of
//! wording, `TRYBUILD=overwrite` writes what it says now. One test for all, since they share one build.

#[test]
fn programs_that_the_api_must_refuse_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/refused_by_compiler/*.rs");
}
