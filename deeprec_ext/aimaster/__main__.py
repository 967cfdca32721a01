from deeprec_ext.aimaster.main import main

raise SystemExit(main())
