//! The command's kernels that compute do so without fused multiply-add, which would round otherwise than the host, on every
//! architecture that is promised; to compile them needs NVRTC but no GPU. `HALOCLINE_TEST_NVRTC` names the library, as `tools/test` does;
//! otherwise what is found is used, and if there is none, that is said.

use halocline_device::cuda::Compiler;

#[test]
fn kernels_that_compute_round_as_the_host_does_on_every_architecture() {
    let chosen = std::env::var_os("HALOCLINE_TEST_NVRTC");
    if let Some(path) = &chosen {
        // SAFETY: no other thread reads or writes the environment: this is the only test of its program.
        unsafe { std::env::set_var("HALOCLINE_NVRTC", path) };
    }
    // SAFETY: no other thread reads or writes the environment: this is the only test of its program. Without a cache
    // everything is compiled.
    unsafe { std::env::set_var("HALOCLINE_CACHE", "off") };
    let compiler = match Compiler::load() {
        Ok(compiler) => compiler,
        Err(why) if chosen.is_none() => return println!("SKIPPED: {why}"),
        Err(why) => panic!("{why}"),
    };
    let sources = [
        ("heat.cu", include_str!("../src/heat/heat.cu")),
        ("ocean.cu", include_str!("../src/ocean/ocean.cu")),
    ];
    for (name, source) in sources {
        let compile = |options: &[&str], capability| {
            compiler.compile(name, source, options, capability).unwrap_or_else(|why| panic!("{why}"))
        };
        for capability in [80, 90, 100] {
            let compiled = compile(&["--fmad=false"], capability);
            assert_eq!(compiled.target, format!("sm_{capability}"));
            assert!(compiled.code().starts_with(b"\x7fELF"), "{name} for {capability} is no cubin");
        }
        // For a GPU of the future there is PTX, which can be read.
        let has_fused = |options: &[&str]| {
            let code = compile(options, 9990);
            String::from_utf8_lossy(code.code()).lines().any(|line| line.trim_start().starts_with("fma.rn"))
        };
        assert!(!has_fused(&["--fmad=false"]), "{name} has a fused multiply-add");
        assert!(has_fused(&[]), "{name} has none anyway: this test finds nothing");
    }
}
