// An expression that examples include: a folder with two libraries from C code, `libscale.so` and `libscale_on.so`, and their
// manifests. The folder is removed when the value is dropped.
{
    let folder = tempfile::tempdir()?;
    let code = "void scale(double *a, int n, double factor) { for (int i = 0; i < n; i++) a[i] *= factor; }
                void scale_on(double *a, int n, double factor, void *stream) { (void)stream; scale(a, n, factor); }";
    std::fs::write(folder.path().join("scale.c"), code)?;
    for (name, streams, last) in [("scale", "", ""), ("scale_on", r#""stream": "stream","#, r#", "stream""#)] {
        let library = folder.path().join(format!("lib{name}.so"));
        let mut compiler = std::process::Command::new("cc");
        compiler.current_dir(&folder).args(["-shared", "-fPIC", "scale.c", "-o"]).arg(&library);
        assert!(compiler.status()?.success(), "this example needs a C compiler, `cc`");
        let manifest = format!(
            r#"{{"format": 1, "program": "{name}", "interface": "c", {streams}
                "arguments": [
                    {{"kind": "array", "name": "a", "type": "float64", "dimensions": [{{"extent": "n", "stride": 1}}]}},
                    {{"kind": "scalar", "name": "factor", "type": "float64"}}],
                "symbols": [{{"name": "n", "type": "int32"}}],
                "parameters": ["a", "n", "factor"{last}]}}"#
        );
        std::fs::write(halocline_program::signature::manifest_path(&library), manifest)?;
    }
    folder
}
