module tupper.dev/agent

go 1.25
